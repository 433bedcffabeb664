# frozen_string_literal: true

require_relative "allocator_fixtures"
require_relative "launching"

# Programs that memscope exec starts under jemalloc.
module ExecLaunching
  include Launching

  # Shows which library serves the malloc of a program that knows nothing about memscope.
  MAPPED = 'File.read("/proc/self/maps")[/libjemalloc/].inspect'

  def setup
    super
    skip "libjemalloc.so.2 is not installed" unless AllocatorFixtures.available?("libjemalloc.so.2")
  end

  def exec(*arguments, **options) = launch("exec", *arguments, **options)

  # A program named env that drops LD_PRELOAD.
  def deceptive_env
    File.write(path("env.c"), <<~C)
      #include <stdlib.h>
      #include <unistd.h>
      int main(int count, char **words) { (void)count; unsetenv("LD_PRELOAD"); return execv(words[1], words + 1); }
    C
    path("env").tap { |output| Compiled.run("cc", path("env.c"), "-o", output) }
  end

  # A command that would leave a trace if it were started.
  def assert_refused(reason, *options, command: ruby("puts 'started'"), **environment)
    ran = exec(*options, "--", *command, env: environment.transform_keys(&:to_s))

    assert_exit 74, ran, out: "",
                         err: /^memscope exec: .*#{reason}.*; (the program|#{command.first}) is not started$/
    ran
  end
end

# frozen_string_literal: true

require "open3"
require_relative "test_helper"

# What extconf.rb asks the compiler.
class ExtconfTest < MemscopeTest
  EXTCONF = File.join(ChildProcess::ROOT, "ext/memscope/extconf.rb")

  def test_tls_descriptors_are_taken_where_the_c_library_keeps_registers
    skip "musl-gcc is not installed" unless system("musl-gcc", "-v", err: File::NULL)

    source = File.read(EXTCONF)[/"-mtls-dialect=gnu2"\)\n(.+?)^C$/m, 1]
    said, status = Open3.capture2e("musl-gcc", "-fsyntax-only", "-xc", "-", stdin_data: source)

    assert_predicate status, :success?, said
  end
end

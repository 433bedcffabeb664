# frozen_string_literal: true

require "yaml"
require_relative "../test_helper"
require_relative "../support/in_directory"

# What docs/deploy.md tells people to write, run as far as it can be without the services it is for.
class DeployTest < MemscopeTest
  include InDirectory

  PAGE = File.read(File.join(ChildProcess::ROOT, "docs/deploy.md"), encoding: "UTF-8")
  # Of Rails 7.2: bin/docker-entrypoint without its last line.
  ENTRYPOINT = <<~SH
    #!/bin/bash -e
    if [ -z "${LD_PRELOAD+x}" ] && [ -f /usr/lib/*/libjemalloc.so.2 ]; then
      export LD_PRELOAD="$(echo /usr/lib/*/libjemalloc.so.2)"
    fi
  SH
  ALLOCATOR = ["ruby", "-rmemscope", "-e", "print Memscope.allocator.name; exit 7"].freeze
  # jemalloc does not follow it, so nothing is proved.
  UNPROVED = { "MALLOC_CONF" => "narenas:many" }.freeze
  # What is neither started nor proved has this status.
  REFUSED = 74

  def setup
    super
    skip_under_sanitizer
    program("bundle", 'shift; exec "$@"')
    program("memscope", %(exec #{[*ChildProcess.ruby, "#{ChildProcess::ROOT}/exe/memscope"].join(' ')} "$@"))
  end

  def test_the_proof_of_a_build_succeeds_and_fails
    ran = run_line(block("proof"))

    assert_equal [0, ""], [ran.status.exitstatus, ran.err]
    assert_equal REFUSED, run_line(block("proof"), UNPROVED).status.exitstatus
  end

  def test_a_program_that_is_not_of_ruby_proves_nothing
    assert_equal 0, run_line("bundle exec memscope exec -- true", UNPROVED).status.exitstatus
  end

  def test_the_proof_of_an_environment_follows_what_is_preloaded
    bare = run_line(block("environment"))

    assert_equal [1, "glibc\n"], [bare.status.exitstatus, bare.err]
    libraries.each { |path| assert_predicate run_line(block("environment"), "LD_PRELOAD" => path), :success?, path }
    missing = run_line(block("environment"), "LD_PRELOAD" => "/nowhere/libjemalloc.so.2")

    assert_equal 1, missing.status.exitstatus
    assert_includes missing.err, "cannot be preloaded"
  end

  def test_the_entrypoint_becomes_a_program_under_jemalloc_or_refuses
    path = program("docker-entrypoint", "#{ENTRYPOINT}#{block('entrypoint')}")
    ran = execute([path, *ALLOCATOR], {})

    assert_equal ["jemalloc", 7], [ran.out, ran.status.exitstatus], ran.err
    refused = execute([path, *ALLOCATOR], UNPROVED)

    assert_equal ["", REFUSED], [refused.out, refused.status.exitstatus]
  end

  def test_each_container_has_the_black_boxes_in_its_volume
    blocks("yaml").each do |text|
      YAML.safe_load(text)

      assert_match(%r{MEMSCOPE_BLACK_BOX.*/var/lib/memscope/boxes}, text)
      assert_match(%r!/var/lib/memscope[,\s}]!, text)
    end
    assert_equal 3, blocks("yaml").size
  end

  def test_kubernetes_mounts_a_volume_of_the_pod_and_keeps_the_entrypoint
    spec = YAML.safe_load(blocks("yaml").last).fetch("spec")
    container = spec.fetch("containers").first

    names = [spec.fetch("volumes"), container.fetch("volumeMounts")].map { |list| list.map { |one| one["name"] } }

    assert_equal(*names)
    assert_empty container.keys & %w[command args] # Rails' entrypoint prepares the database for the image's CMD
  end

  def test_systemd_knows_each_line_of_the_unit
    path = File.join(@directory, "shop.service")
    File.write(path, block("unit").sub("/usr/bin/bundle", "/bin/true"))
    ran = execute(["systemd-analyze", "verify", "--man=no", path], {})

    assert_equal ["", 0], [ran.err, ran.status.exitstatus]
  rescue Errno::ENOENT
    skip "no systemd-analyze"
  end

  private

  def blocks(mark) = PAGE.scan(/^<!-- run: #{mark} -->\n```\w+\n(.*?)^```$/m).flatten

  def block(mark) = blocks(mark).fetch(0)

  # The paths of the page's table that this machine has, and the name that the linker looks up.
  def libraries
    found = PAGE[/^\| where.*?\n\n/m].scan(%r{`(/\S+\.so\.2)`}).flatten.select { |path| File.exist?(path) }
    skip "no libjemalloc.so.2 where Debian has it" if found.empty?
    [*found, "libjemalloc.so.2"]
  end

  def program(name, text)
    path = File.join(@directory, name)
    File.write(path, text.start_with?("#!") ? text : "#!/bin/sh\n#{text}\n")
    File.chmod(0o755, path)
    path
  end

  def run_line(text, env = {}) = execute(["sh", "-c", text], env)

  def execute(command, env)
    load_path = ChildProcess::LOAD_PATH.join(":")
    ruby = File.dirname(RbConfig.ruby)
    ChildProcess.run_command(*command, env: { "PATH" => "#{@directory}:#{ruby}:#{ENV.fetch('PATH')}",
                                              "RUBYLIB" => load_path, **env })
  end
end

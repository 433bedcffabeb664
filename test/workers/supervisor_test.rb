# frozen_string_literal: true

require_relative "../test_helper"
require "memscope/workers/single_host"
require "minitest/mock"
require "tmpdir"

class SupervisorTest < MemscopeTest
  SYSTEMD = { "INVOCATION_ID" => "0123456789abcdef" }.freeze

  def supervisor(environment = {}, supervised: false, pid: Process.pid)
    kept = ENV.to_h
    ENV.update({ "INVOCATION_ID" => nil, "KUBERNETES_SERVICE_HOST" => nil, **environment })
    Memscope::Workers.stub(:setting, supervised) do
      Process.stub(:pid, pid) { Memscope::Workers::Supervisor.of_this_process }
    end
  ensure
    ENV.replace(kept)
  end

  # As the service's manager answers.
  def systemd(restart, main: Process.pid, unit: "app.service")
    Dir.mktmpdir do |directory|
      path = File.join(directory, "systemctl")
      File.write(path, <<~SH)
        #!/bin/sh
        echo "$@" > #{directory}/asked
        printf 'Restart=#{restart}\\nMainPID=#{main}\\n'
      SH
      File.chmod(0o755, path)
      Memscope::Workers::Supervisor.stub(:unit, [unit, "--system"]) do
        found = supervisor({ **SYSTEMD, "PATH" => "#{directory}:#{ENV.fetch('PATH')}" })
        asked = File.read(File.join(directory, "asked")).chomp if File.exist?(File.join(directory, "asked"))
        [found, asked]
      end
    end
  end

  def test_nothing_is_proved_by_default
    assert_nil supervisor
    assert_nil supervisor(SYSTEMD)
  end

  def test_the_setting = assert_equal(:setting, supervisor(supervised: true))

  def test_kubernetes_starts_a_container_again_whose_first_process_ended
    kubernetes = { "KUBERNETES_SERVICE_HOST" => "10.0.0.1" }

    assert_equal :kubernetes, supervisor(kubernetes, pid: 1)
    assert_nil supervisor(kubernetes)
  end

  def test_systemd_starts_a_service_again_that_ended_with_success
    assert_equal [:systemd, "--system show --property=Restart,MainPID app.service"], systemd("always")
    assert_equal :systemd, systemd("on-success").first
    assert_nil systemd("on-failure").first, "Sidekiq ends with success"
    assert_nil systemd("no").first
  end

  def test_a_service_whose_main_process_is_another_one
    assert_nil systemd("always", main: Process.ppid).first
    assert_equal [nil, nil], systemd("always", unit: nil)
  end
end

# frozen_string_literal: true

require "open3"

module Memscope
  class Workers < Reading
    # Proves that something starts this process again after it has exited successfully.
    #
    # @api private
    module Supervisor
      # Values of systemd's Restart= that start a service again after it has exited successfully.
      RESTARTS = %w[always on-success].freeze
      private_constant :RESTARTS

      class << self
        # @return [Symbol, nil] :setting, :kubernetes, :systemd; nil if nothing is proved
        def of_this_process
          return :setting if Workers.setting(:policy_supervised)
          return :kubernetes if Process.pid == 1 && ENV.key?("KUBERNETES_SERVICE_HOST")

          :systemd if ENV.key?("INVOCATION_ID") && service?(*unit)
        end

        private

        # The unit that this process is in, and the option with which its manager is asked.
        def unit
          path = File.read("/proc/self/cgroup")[/^(?:0:|\d+:name=systemd):(.*)$/, 1].to_s
          [path.split("/").grep(/\.service\z/).last, path.include?("/user@") ? "--user" : "--system"]
        end

        # Whether systemd restarts the service when this process ends: a service ends only when its main process ends.
        def service?(unit, manager)
          return false unless unit

          command = ["systemctl", manager, "show", "--property=Restart,MainPID", unit]
          text, status = Open3.capture2(*command, err: File::NULL)
          shown = text.lines(chomp: true).to_h { |line| line.split("=", 2) }
          status.success? && shown["MainPID"] == Process.pid.to_s && RESTARTS.include?(shown["Restart"])
        rescue SystemCallError
          false
        end
      end
    end
  end
end

# frozen_string_literal: true

require "rbconfig"

module Memscope
  module Launch
    # The file that a command names, as far as memscope looks at it before it becomes the program. Whether the chosen
    # allocator serves malloc is proved in the started program. A script is not looked at: its interpreter may be any.
    class Program
      # The kernel ignores set-gid on a file that its group may not execute (bprm_fill_uid of Linux, fs/exec.c).
      GROUP_MAY_EXECUTE = 0o010
      private_constant :GROUP_MAY_EXECUTE

      # @return [Array<String>] the command and its arguments
      attr_reader :command

      # @param command [Array<String>]
      def initialize(command)
        @command = command
        @path = find(command.first)
        @linker = Native.dynamic_linker(@path) if @path
      end

      # @param library [String, nil] as in LD_PRELOAD
      # @return [String, nil] why the program cannot have its malloc served by it; nil if no reason is known
      def obstacle(library)
        return unless executable?

        own = Native.dynamic_linker(RbConfig.ruby)
        rights = foreign_rights if library
        if rights then "#{@path} #{rights}: the dynamic linker ignores LD_PRELOAD in it"
        elsif @linker.nil? then "#{@path} is linked statically: its malloc is its own"
        elsif own.is_a?(String) && File.basename(@linker) != File.basename(own)
          "#{@path} has another C library: its dynamic linker is #{@linker}, that of Ruby #{own}"
        end
      end

      # @return [String, nil] its path, if it is an executable other than the Ruby that runs memscope, and so runs
      #   nothing of memscope itself; nil also for env(1), a script, or a file that is not found
      def stranger
        @path if executable? && File.basename(@path) != "env" && !File.identical?(@path, RbConfig.ruby)
      end

      # @param environment [Environment]
      # @param title [String] of the memscope command
      # @raise [Refusal] if env(1), as the command, would set a variable that the environment has prepared
      def check_overridden(environment, title)
        return unless File.basename(command.first) == "env"

        names = command.drop(1).filter_map { |word| word[/\A[^-=][^=]*(?==)/] }
        name = names.find { |one| environment.changes.key?(one) } or return

        raise Refusal, "#{name} is set by env in the command, after #{title} has " \
                       "prepared the environment; set it for #{title} itself: env " \
                       "#{name}=... #{title} -- ..."
      end

      # Becomes the program.
      #
      # @param environment [Environment]
      # @raise [SystemCallError]
      def exec(environment)
        Process.exec(environment.changes, [command.first, command.first], *command.drop(1))
      end

      private

      def find(name)
        directories = name.include?("/") ? [""] : ENV.fetch("PATH", "").split(":")
        directories.map { |directory| directory.empty? ? name : File.join(directory, name) }
                   .find { |path| File.file?(path) && File.executable?(path) }
      end

      # Whether it is an ELF file, with a dynamic linker or without.
      def executable? = !@path.nil? && !@linker.is_a?(Symbol)

      # Why the kernel would start the executable in secure-execution mode (AT_SECURE, ld.so(8)); nil if it would not.
      def foreign_rights
        stat = File.stat(@path)
        if stat.setuid? && stat.uid != Process.uid
          "is set-uid"
        elsif stat.setgid? && stat.mode.anybits?(GROUP_MAY_EXECUTE) && stat.gid != Process.gid
          "is set-gid"
        elsif Process.uid != 0 && Native.file_capabilities(@path)
          "has file capabilities"
        end
      end
    end
  end
end

# frozen_string_literal: true

require "rbconfig"
require_relative "elf"

module Memscope
  module Launch
    # A program as the kernel would start it: the file that a command names, and the executable that a script among
    # them is run by.
    class Program
      # There is none that could be started; the message is the reason.
      class Unavailable < StandardError
        # @return [Integer] what env(1) and shells exit with then: 127 where there is no such file, else 126
        attr_reader :status

        # @param name [String]
        # @param error [Class] of Errno
        def initialize(name, error)
          super("#{name}: #{error.new.message}")
          @status = error == Errno::ENOENT ? 127 : 126
        end
      end

      # What execvp searches where PATH is not set.
      DEFAULT_PATH = "/bin:/usr/bin"
      # What the kernel reads of a file to see how it is started (BINPRM_BUF_SIZE), and how many scripts it follows.
      HEADER_BYTES = 256
      DEEPEST = 5
      # The option of env(1) that splits its argument.
      SPLIT = /\A(-S|--split-string=)/
      # An assignment among the arguments of env(1).
      ASSIGNMENT = /\A[^-=][^=]*=/
      # A set-gid file that its group may not execute is started as any other (bprm_fill_uid of Linux, fs/exec.c).
      GROUP_MAY_EXECUTE = 0o010
      private_constant :DEFAULT_PATH, :HEADER_BYTES, :DEEPEST, :SPLIT, :ASSIGNMENT, :GROUP_MAY_EXECUTE

      # @return [String] the file that the command names
      attr_reader :path

      # @param command [Array<String>] the command and its arguments
      # @param search_path [String, nil] as in PATH
      # @raise [Unavailable]
      def initialize(command, search_path)
        @search_path = search_path || DEFAULT_PATH
        name, *@arguments = command
        @path = search(name)
        @assigned = []
      end

      # @return [String] the executable that the kernel, scripts and env(1) followed, ends up with
      # @raise [Unavailable] when the interpreter of a script is
      # @raise [Refusal] when that cannot be found out
      def executable = @executable ||= follow(@path, @arguments, DEEPEST)

      # @return [Array<String>] the variables that env(1) sets on the way there
      # @raise [Unavailable]
      # @raise [Refusal]
      def assigned
        executable
        @assigned
      end

      # @return [String, nil] its dynamic linker; nil for a static executable
      # @raise [Refusal]
      def dynamic_linker = ELF.interpreter(executable)

      # @return [Boolean] whether it is the very Ruby that runs memscope, whose extension no other can load
      def ruby? = File.realpath(executable) == File.realpath(RbConfig.ruby)

      # @return [String, nil] why the dynamic linker would ignore LD_PRELOAD in it
      # @raise [Refusal]
      def preload_obstacle
        rights = foreign_rights
        return "#{executable} #{rights}: the dynamic linker ignores LD_PRELOAD in it" if rights

        "#{executable} is linked statically: nothing can be preloaded into it" unless dynamic_linker
      end

      private

      # What makes the kernel start it in secure mode.
      def foreign_rights
        stat = File.stat(executable)
        if stat.setuid? && stat.uid != Process.uid
          "is set-uid"
        elsif stat.setgid? && stat.mode.anybits?(GROUP_MAY_EXECUTE) && stat.gid != Process.gid
          "is set-gid"
        elsif Process.uid != 0 && Native.file_capabilities(executable)
          "has file capabilities"
        end
      end

      # As execvp: a name with a slash is a path, others are searched; a file that cannot be executed does not end the
      # search.
      def search(name)
        raise Unavailable.new(name.inspect, Errno::ENOENT) if name.empty?

        candidates = [name]
        candidates = directories.map { |directory| File.join(directory, name) } unless name.include?("/")
        found = candidates.find { |path| File.file?(path) && File.executable?(path) }
        found || raise(Unavailable.new(name, obstacle(candidates, searched: !name.include?("/"))))
      end

      def obstacle(candidates, searched:)
        errors = candidates.map do |path|
          File.stat(path)
          Errno::EACCES
        rescue SystemCallError => e
          e.class
        end
        (errors - [Errno::ENOENT, (Errno::ENOTDIR if searched)]).first || Errno::ENOENT
      end

      # An empty entry is the working directory.
      def directories = @search_path.split(":", -1).map { |directory| directory.empty? ? "." : directory }

      def follow(path, arguments, scripts_left)
        raise Refusal, "#{path}: too many scripts run by scripts" if scripts_left.zero?

        header = File.binread(path, HEADER_BYTES).to_s
        return follow_env(path, arguments, scripts_left) if ELF.magic?(header)

        interpreter, argument = header.start_with?("#!") ? shebang(path, header) : ["/bin/sh", nil]
        follow(search(interpreter), [argument, path, *arguments].compact, scripts_left - 1)
      rescue SystemCallError => e
        raise Refusal, "#{path}: how it is run cannot be read: #{e.class.new.message}"
      end

      def shebang(path, header)
        line = header[2..].lines.first.to_s.strip.force_encoding(Encoding.default_external)
        interpreter, argument = line.split(/[ \t]+/, 2)
        raise Refusal, "#{path}: its first line names no interpreter" unless interpreter

        interpreter = File.join(".", interpreter) unless interpreter.include?("/")
        [interpreter, argument]
      end

      # env(1) becomes the program that it names, in an environment that its options may have emptied.
      def follow_env(path, arguments, scripts_left)
        return path unless File.basename(path) == "env"

        words = split(arguments)
        assignments = words.take_while { |word| word.match?(ASSIGNMENT) }
        @assigned.concat(assignments.map { |word| word[/\A[^=]*/] })
        name, *rest = words.drop(assignments.size)
        return path unless name

        raise Refusal, "#{path} #{name}: what it leaves of the environment is not known" if name.start_with?("-")

        follow(search(name), rest, scripts_left - 1)
      end

      # In a script's first line, -S keeps several words apart.
      def split(arguments)
        first, *rest = arguments
        first&.match?(SPLIT) ? first.sub(SPLIT, "").split + rest : arguments
      end
    end
  end
end

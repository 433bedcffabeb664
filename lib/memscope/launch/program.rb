# frozen_string_literal: true

require "open3"
require "rbconfig"

module Memscope
  module Launch
    # A program as the kernel would start it: the file that a command names, the executable that runs it if it is a
    # script, and the libraries that the executable's dynamic linker would map.
    class Program
      # The command names no program that can start; the message is the reason.
      class Unavailable < StandardError
        # @return [Integer] the exit status, as env(1) and shells give it: 127 if there is no such file, else 126
        attr_reader :status

        # @param name [String]
        # @param error [Class] of Errno
        def initialize(name, error)
          super("#{name}: #{error.new.message}")
          @status = error == Errno::ENOENT ? 127 : 126
        end
      end

      # The directories that execvp(3) searches if PATH is not set.
      DEFAULT_PATH = "/bin:/usr/bin"
      # How many bytes of a file the kernel reads to see how to start it (BINPRM_BUF_SIZE), and how many nested scripts
      # it follows.
      HEADER_BYTES = 256
      DEEPEST = 5
      # How the programs of a relocatable Ruby (--enable-load-relative, tool/rbinstall.rb), such as bundle, begin: each
      # is a shell script that runs the Ruby in its own directory.
      BESIDE_RUBY = %r{\A#!/bin/sh\n# -\*- ruby -\*-\n.*^bindir="\$\{0%/\*\}"\nexec "\$bindir/(\w+)" "-x" "\$0" }m
      PROLOGUE_BYTES = 1024
      # The option of env(1) that splits its argument.
      SPLIT = /\A(-S|--split-string=)/
      # An assignment among the arguments of env(1).
      ASSIGNMENT = /\A[^-=][^=]*=/
      # The kernel ignores set-gid on a file that its group may not execute (bprm_fill_uid of Linux, fs/exec.c).
      GROUP_MAY_EXECUTE = 0o010
      # A line of ld.so --list: the requested name, and the file if that differs.
      MAPPED = /^\s*(\S.*?) (?:=> (.+) )?\(0x\h+\)$/
      # glibc's C library, which has a malloc of its own.
      LIBC = "libc.so.6"
      # With these variables, glibc's ld.so binds all symbols of a program and reports the bindings, without running the
      # program (ld.so(8)). musl's dynamic linker would run it.
      BIND = { "LD_TRACE_LOADED_OBJECTS" => "1", "LD_WARN" => "yes", "LD_BIND_NOW" => "yes",
               "LD_DEBUG" => "bindings", "LD_DEBUG_OUTPUT" => nil }.freeze
      BOUND = /binding file (.+) \[0\] to (.+) \[0\]: normal symbol `malloc'/
      private_constant :DEFAULT_PATH, :HEADER_BYTES, :DEEPEST, :BESIDE_RUBY, :PROLOGUE_BYTES, :SPLIT, :ASSIGNMENT,
                       :GROUP_MAY_EXECUTE, :MAPPED, :LIBC, :BIND, :BOUND

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

      # @return [String] the executable that finally runs, past scripts and env(1)
      # @raise [Unavailable] if the interpreter of a script is unavailable
      # @raise [Refusal] if it cannot be determined
      def executable = @executable ||= follow(@path, @arguments, DEEPEST)

      # @return [Array<String>] the names of the variables that env(1), as part of the command, sets for the program
      # @raise [Unavailable]
      # @raise [Refusal]
      def assigned
        executable
        @assigned
      end

      # @return [Boolean] whether it is the very Ruby that runs memscope; no other can load memscope's extension
      def ruby? = File.realpath(executable) == File.realpath(RbConfig.ruby)

      # @return [String, nil] its dynamic linker; nil for a static executable
      # @raise [Refusal] if the file is damaged or cannot be read
      def dynamic_linker
        linker = Native.dynamic_linker(executable)
        return linker unless linker.is_a?(Symbol)

        raise Refusal, "#{executable}: its ELF header cannot be read: #{Reasons.sentence(linker)}"
      end

      # Why the library would not serve the program's malloc. For Ruby the probe answers this. For any other program,
      # only the dynamic linker can tell without running the program: whether the linker maps the library at all (it
      # does not if the program is static, or linked with another C library), and whether the program binds another
      # malloc, such as one of its own. A malloc that the program does not export stays invisible.
      #
      # @param library [String, nil] as in LD_PRELOAD; nil for the C library
      # @param changes [Hash{String => String, nil}] changes to the environment
      # @return [String, nil] nil if there is no objection
      # @raise [Refusal]
      def objection(library, changes)
        rights = foreign_rights if library
        return "#{executable} #{rights}: the dynamic linker ignores LD_PRELOAD in it" if rights
        return if ruby?

        linker = dynamic_linker
        return "#{executable} is linked statically: its malloc is its own" unless linker

        name = library || LIBC
        mapped = mapped_by(linker, changes)
        return "#{linker} does not map #{name} into #{executable}" unless mapped.key?(name.b) && mapped.key?(LIBC)

        usurped(linker, mapped[name.b], changes)
      rescue SystemCallError => e
        raise Refusal, "#{executable}: its dynamic linker #{linker}: #{e.class.new.message}"
      end

      private

      # The mapped files by their requested names. Paths are binary strings, whatever the locale.
      def mapped_by(linker, changes)
        out, _, status = Open3.capture3(changes, linker, "--list", executable)
        status.success? ? out.b.scan(MAPPED).to_h { |name, file| [name, file || name] } : {}
      end

      # Looks at the bindings of the executable, whose own malloc would precede preloaded libraries, and of the C
      # library, because the executable need not call malloc. Other libraries may bind a malloc of their own.
      def usurped(linker, expected, changes)
        _, err, = Open3.capture3(changes.merge(BIND), linker, executable)
        bound = err.b.scan(BOUND).select { |from, _| from == executable.b || File.basename(from) == LIBC }
        return "#{linker} does not report which malloc #{executable} binds" if bound.empty?

        other = bound.map(&:last).find { |file| !File.identical?(file, expected) }
        return unless other

        files = [other, expected].map { |path| path.force_encoding(Encoding.default_external) }
        "malloc in #{executable} is served by #{files.join(', not by ')}"
      end

      # Why the kernel would start the executable in secure-execution mode (AT_SECURE, ld.so(8)); nil if it would not.
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

      # Like execvp(3): searches PATH for a name without a slash, and skips files that cannot be executed.
      def search(name)
        raise Unavailable.new(name.inspect, Errno::ENOENT) if name.empty?

        searched = !name.include?("/")
        # An empty entry is the working directory.
        directories = @search_path.split(":", -1).map { |directory| directory.empty? ? "." : directory }
        candidates = searched ? directories.map { |directory| File.join(directory, name) } : [name]
        found = candidates.find { |path| File.file?(path) && File.executable?(path) }
        found || raise(Unavailable.new(name, obstacle(candidates, searched: searched)))
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

      def follow(path, arguments, scripts_left)
        raise Refusal, "#{path}: too many nested scripts" if scripts_left.zero?

        header = File.binread(path, HEADER_BYTES).to_s
        return follow_env(path, arguments, scripts_left) if header.start_with?("\x7FELF".b)

        interpreter, argument = header.start_with?("#!") ? shebang(path, header) : ["/bin/sh", nil]
        follow(search(interpreter), [argument, path, *arguments].compact, scripts_left - 1)
      rescue SystemCallError => e
        raise Refusal, "#{path}: its first line cannot be read: #{e.class.new.message}"
      end

      def shebang(path, header)
        beside = header.start_with?("#!/bin/sh\n") && File.binread(path, PROLOGUE_BYTES)[BESIDE_RUBY, 1]
        return [File.join(File.dirname(path), beside), "-x"] if beside

        line = header[2..].lines.first.to_s.strip.force_encoding(Encoding.default_external)
        interpreter, argument = line.split(/[ \t]+/, 2)
        raise Refusal, "#{path}: its first line names no interpreter" unless interpreter

        interpreter = File.join(".", interpreter) unless interpreter.include?("/")
        [interpreter, argument]
      end

      # env(1) becomes the program that it names, found in the PATH that it sets, in an environment that its options may
      # have cleared.
      def follow_env(path, arguments, scripts_left)
        return path unless File.basename(path) == "env"

        words = split(arguments)
        assignments = words.take_while { |word| word.match?(ASSIGNMENT) }
        @assigned.concat(assignments.map { |word| word[/\A[^=]*/] })
        @search_path = assignments.filter_map { |word| word[/\APATH=(.*)\z/m, 1] }.last || @search_path
        name, *rest = words.drop(assignments.size)
        return path unless name

        raise Refusal, "#{path} #{name}: memscope cannot tell which variables this keeps" if name.start_with?("-")

        follow(search(name), rest, scripts_left - 1)
      end

      # In a script's first line, env -S splits its argument into words.
      def split(arguments)
        first, *rest = arguments
        first&.match?(SPLIT) ? first.sub(SPLIT, "").split + rest : arguments
      end
    end
  end
end

# frozen_string_literal: true

module Memscope
  module Launch
    # Passes orders to the Ruby program that memscope becomes: an environment variable for each mode, and autorun.rb,
    # which RUBYOPT loads before the program's script. Both are for this one process, which keeps its pid across exec:
    # autorun removes them from the environment of any other process that inherits them.
    #
    # The program loads this file too, before anything else of memscope: so this file requires nothing.
    module Handoff
      # The modes of autorun, in the order in which they run; true if a mode runs again in each further Ruby program
      # that the process execs.
      MODES = { "prove" => false, "profile" => true, "requires" => true, "report" => true }.freeze
      LIBRARY = File.expand_path("../..", __dir__)
      private_constant :MODES, :LIBRARY

      # An order in the started program, with the tools to carry it out.
      class Order
        # @param values [Hash{Symbol => Object}]
        def initialize(values)
          @values = values
        end

        # @param name [Symbol]
        # @return [Object]
        def [](name) = @values[name]

        # Loads memscope, and leaves $LOAD_PATH as it was.
        #
        # @return [void]
        def load_memscope
          return if Memscope.respond_to?(:ledger)

          load_path = Handoff.load_path(self[:extension])
          $LOAD_PATH.unshift(*load_path)
          require_relative "../../memscope"
        ensure
          load_path&.each { |directory| $LOAD_PATH.delete_at($LOAD_PATH.index(directory)) }
        end

        # Opens the file that memscope created. To be called before the program can drop privileges.
        #
        # @return [IO] the file, else standard error
        def output
          return $stderr unless self[:output]

          flags = File::WRONLY | File::APPEND | File::NOFOLLOW
          File.new(self[:output], flags, external_encoding: Encoding::UTF_8).tap { |file| file.sync = true }
        rescue SystemCallError => e
          complain(e.message)
          $stderr
        end

        # How to format texts: the program writes to the same terminal as the memscope command.
        #
        # @param io [IO] from `output`
        # @return [Hash{Symbol => Object}] a Report::Display
        def display(io)
          require_relative "../report"
          { unicode: Report.encoding(io) == Encoding::UTF_8, width: self[:width] || Report::Page::WIDTH,
            color: self[:color] || false }
        end

        # @param message [String]
        # @return [void]
        def complain(message)
          $stderr.write("memscope #{self[:title]}: #{message}\n") # warn is silent under -W0
        rescue StandardError
          nil
        end

        # Runs a block in a thread that is marked, so that Puma does not warn about it at a fork. While the thread is in
        # a timed sleep, Ruby does not detect deadlocks of the program's threads.
        #
        # @return [Thread]
        def background(&) = Thread.new(&).tap { |thread| thread.thread_variable_set(:fork_safe, true) }
      end

      class << self
        # @param mode [String] a key of MODES
        # @param environment [Environment] to change
        # @param order [Hash{Symbol => Object}] the values to pass; nil ones are left out
        # @raise [Refusal] if RUBYOPT cannot name autorun.rb
        def write(mode, environment, **order)
          values = { pid: Process.pid, extension: extension_directory, **order }.compact
          environment[variable(mode)] = [Marshal.dump(values)].pack("m0")
          put_first(environment, "RUBYOPT", option, " ")
          return unless spaced?
          raise Refusal, "#{LIBRARY}: Ruby loads no path with both a space and a colon" if LIBRARY.include?(":")

          put_first(environment, "RUBYLIB", LIBRARY, ":")
        end

        # Called by autorun.rb. Removes from the environment and the load path whatever no later program of this process
        # needs.
        #
        # @return [Hash{String => Order}] the orders for this process, by mode
        def read
          orders = MODES.filter_map { |mode, kept| [mode, take(mode, kept)] }.to_h.compact
          $LOAD_PATH.delete(LIBRARY) if spaced?
          if MODES.keys.none? { |mode| ENV.key?(variable(mode)) }
            remove("RUBYOPT", option, " ")
            remove("RUBYLIB", LIBRARY, ":") if spaced?
          end
          orders
        end

        # @param extension [String, nil] the extension's directory
        # @return [Array<String>] memscope's directories, its extension's first
        def load_path(extension = extension_directory) = [extension, LIBRARY].compact.uniq

        private

        def variable(mode) = "MEMSCOPE_AUTORUN_#{mode.upcase}"

        # RUBYOPT is split at spaces. If the path contains one, Ruby finds the file through RUBYLIB, which is split at
        # colons only.
        def option = "-r#{spaced? ? 'memscope/launch/autorun' : File.join(__dir__, 'autorun.rb')}"

        def spaced? = LIBRARY.match?(/\s/)

        def take(mode, kept)
          text = ENV.fetch(variable(mode), nil)
          order = Marshal.load(text.unpack1("m0")) if text # rubocop:disable Security/MarshalLoad -- as trusted as RUBYOPT
          meant = order && order[:pid] == Process.pid
          ENV.delete(variable(mode)) unless meant && kept
          Order.new(order) if meant
        end

        # Puts the value first, and removes other copies of it: several modes share the variable.
        def put_first(environment, name, value, separator)
          environment[name] = [value, *environment[name].split(separator) - [value]].join(separator)
        end

        def remove(name, value, separator)
          values = ENV[name].to_s.split(separator)
          return unless values.delete(value)

          ENV[name] = (values.join(separator) unless values.empty?)
        end

        # RubyGems may install the extension in a directory other than the library's.
        def extension_directory
          loaded = $LOADED_FEATURES.find { |path| path.end_with?("/memscope/memscope.so") }
          File.expand_path("../..", loaded) if loaded
        end
      end
    end
  end
end

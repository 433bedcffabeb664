# frozen_string_literal: true

module Memscope
  module Launch
    # Passes orders to the Ruby program that memscope becomes, directly or through other programs: an environment
    # variable for each mode, and autorun.rb, which RUBYOPT loads before the program's script. Both are for this one
    # process, which keeps its pid across exec: autorun removes them from the environment of any other process that
    # inherits them.
    #
    # The program loads this file too, before anything else of memscope: so this file requires nothing.
    module Handoff
      # The modes of autorun, in the order in which they run. True if a mode runs again in each further Ruby program
      # that the process execs.
      MODES = { "proof" => false, "profile" => true, "leaks" => true, "requires" => true, "report" => true }.freeze
      LIBRARY = File.expand_path("../../..", __dir__)
      # RUBYOPT is split at spaces. If the path contains one, Ruby finds the file through RUBYLIB, which is split at
      # colons.
      SPACED = LIBRARY.match?(/\s/)
      AUTORUN = "-r#{SPACED ? 'memscope/cli/launch/autorun' : File.join(__dir__, 'autorun.rb')}".freeze
      # The needs of each order, by variable: its value, and the separator from other values.
      NEEDED = { "RUBYOPT" => [AUTORUN, " "], **(SPACED ? { "RUBYLIB" => [LIBRARY, ":"] } : {}) }.freeze

      class << self
        # @raise [Refusal] if no variable can name autorun.rb
        def write(mode, environment, **order)
          raise Refusal, WORDS.fill(:not_loadable, directory: LIBRARY) if SPACED && LIBRARY.include?(":")

          values = { pid: Process.pid, extension: extension_directory, **order }.compact
          environment[variable(mode)] = [Marshal.dump(values)].pack("m0")
          NEEDED.each do |name, (needed, separator)| # several modes share these
            environment[name] = [needed, *environment[name].split(separator) - [needed]].join(separator)
          end
        end

        # Called by autorun.rb. Removes variables from the environment that no later program of this process needs.
        #
        # @return [Hash{String => Hash}] the orders for this process, by mode
        def read
          orders = MODES.filter_map { |mode, kept| [mode, take(mode, kept)] }.to_h.compact
          $LOAD_PATH.delete(LIBRARY) if SPACED
          withdraw if MODES.keys.none? { |mode| ENV.key?(variable(mode)) }
          orders
        end

        # memscope's directories, its extension's first.
        def load_path(extension = extension_directory) = [extension, LIBRARY].compact.uniq

        private

        def variable(mode) = "MEMSCOPE_AUTORUN_#{mode.upcase}"

        def take(mode, kept)
          text = ENV.fetch(variable(mode), nil)
          order = Marshal.load(text.unpack1("m0")) if text # rubocop:disable Security/MarshalLoad -- as trusted as RUBYOPT
          meant = order && order[:pid] == Process.pid
          ENV.delete(variable(mode)) unless meant && kept
          order if meant
        end

        def withdraw
          NEEDED.each do |name, (needed, separator)|
            values = ENV.fetch(name, "").split(separator)
            ENV[name] = (values.join(separator) unless values.empty?) if values.delete(needed)
          end
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

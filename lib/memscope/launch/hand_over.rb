# frozen_string_literal: true

module Memscope
  module Launch
    # What memscope leaves for the Ruby program that it becomes: a file that is loaded before the program's script, by
    # RUBYOPT, and an order for it, in a variable. Both are meant for this one process, which keeps its id across exec:
    # the file removes the two from any other that inherits them.
    #
    # This file is loaded into that program too, and needs nothing.
    module HandOver
      LIBRARY = File.expand_path("../..", __dir__)
      private_constant :LIBRARY

      class << self
        # @param task [String] the name of a file beside this one
        # @param environment [Environment] to be changed
        # @param order [Hash{Symbol => Object}] for the task; nil is left out
        # @raise [Refusal] when RUBYOPT cannot name the file
        def give(task, environment, **order)
          values = { pid: Process.pid, extension: extension_directory, **order }.compact
          environment[variable(task)] = values.map { |key, value| "#{key}=#{value}".b.dump }.join("\n")
          environment["RUBYOPT"] = [option(task), environment["RUBYOPT"]].reject(&:empty?).join(" ")
          return unless spaced?

          raise Refusal, "#{LIBRARY}: Ruby takes no path with both a space and a colon" if LIBRARY.include?(":")

          environment["RUBYLIB"] = [LIBRARY, environment["RUBYLIB"]].reject(&:empty?).join(":")
        end

        # Called by the task's file.
        #
        # @param task [String]
        # @param keep [Boolean] whether the process may meet the task again, having become another program by exec
        # @return [Hash{String => String}, nil] the order; nil in any other process
        def take(task, keep: false)
          order = ENV[variable(task)]&.lines(chomp: true)&.to_h { |line| entry(line) }
          meant = order && order["pid"] == Process.pid.to_s
          $LOAD_PATH.delete(LIBRARY) if spaced?
          withdraw(task) unless meant && keep
          order if meant
        end

        # @param order [Hash{String => String}, nil]
        # @return [Array<String>] where memscope is, its extension first
        def load_path(order = { "extension" => extension_directory }) = [order["extension"], LIBRARY].compact.uniq

        private

        def variable(task) = "MEMSCOPE_#{task.upcase}"

        def entry(line)
          line.undump.b.split("=", 2).map { |text| text.force_encoding(Encoding.default_external) }
        end

        # RUBYOPT ends a path at a space; then the file is found through RUBYLIB, which does not.
        def option(task) = "-r#{spaced? ? "memscope/launch/#{task}" : File.join(__dir__, "#{task}.rb")}"

        def spaced? = LIBRARY.match?(/\s/)

        def withdraw(task)
          ENV.delete(variable(task))
          remove("RUBYOPT", option(task), " ")
          remove("RUBYLIB", LIBRARY, ":") if spaced?
        end

        # Once: another task may be there for the same reason.
        def remove(name, value, separator)
          values = ENV[name].to_s.split(separator)
          index = values.index(value)
          return unless index

          values.delete_at(index)
          ENV[name] = (values.join(separator) unless values.empty?)
        end

        # RubyGems may keep extensions apart from the library.
        def extension_directory
          loaded = $LOADED_FEATURES.find { |path| path.end_with?("/memscope/memscope.so") }
          File.expand_path("../..", loaded) if loaded
        end
      end
    end
  end
end

# frozen_string_literal: true

require_relative "../value/loading"

module Memscope
  # Loads all files that are otherwise loaded when they are first used, but those of rooms that a process loads by
  # naming them.
  #
  # @api private
  module EagerLoad
    ROOMS = Loading::UNITS.except(*Loading::APART)
    private_constant :ROOMS

    class << self
      # @return [void]
      def run
        Loading.resolve(Memscope, ROOMS.values.flat_map(&:keys))
        files.each { |file| require file }
      end

      private

      # Files at the root of a room come first: the other files reopen classes and modules that these define. What
      # takes the extension's place is left out.
      def files
        library = File.dirname(__dir__)
        names = Dir.glob("{#{ROOMS.keys.join(',')}}/**/*.rb", base: library).grep_v(%r{/native/})
        names.sort_by { |name| [name.count("/"), name] }.map { |name| File.join(library, name) }
      end
    end
  end
end

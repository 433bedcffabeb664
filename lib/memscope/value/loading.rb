# frozen_string_literal: true

require_relative "reasons"

module Memscope
  # Loads files when they are first used, each file whole: Thread#kill, Thread#raise and Timeout take effect afterwards.
  # A file that is left in the middle can leave a half-defined class behind, or a deadlock of Ruby's own locks.
  # @api private
  module Loading
    LIBRARY = File.dirname(__dir__).freeze
    # The rooms that a process loads whole if it loads eagerly. Of the others, it loads what it names.
    EAGER = %w[value process heap profile judge action remote show].freeze
    # The file of each constant that is loaded when it is first named. Whatever a program requires loads the facade
    # first, so no file requires the values and readings below it.
    FILES = File.read("#{__dir__}/loading.txt").scan(%r{^(\w+/\w+) (.+)}).flat_map do |file, names|
      names.split.map { |name| [name.to_sym, "#{LIBRARY}/#{file}.rb".freeze] }
    end.to_h.freeze

    class << self
      # Instead of require_relative for the file of a constant of Memscope that may be autoloaded: while require runs
      # such a file, other threads see the constant half-defined. While autoload does, they wait.
      #
      # @return [Module] loaded, together with all that it would autoload later
      def unit(name, namespace = Memscope)
        return namespace.const_get(name, false) unless namespace.autoload?(name)

        whole { namespace.const_get(name, false).tap { |constant| resolve(constant) if constant.is_a?(Module) } }
      end

      # The last of the methods that lead from a constant to one object after the other.
      def reader(name, *path, read) = path.reduce(unit(name), :public_send).method(read)

      def units(*names) = names.each { |name| unit(name) }

      # Has Ruby load each file when one of its constants is first named.
      def register = FILES.each { |name, file| Memscope.autoload(name, file) }

      # @yield loads files
      # @raise [Errno::EMFILE] if they cannot be opened because no descriptor is free
      def whole(&)
        Thread.handle_interrupt(Object => :never, &)
      rescue LoadError, SystemCallError => e
        raise e unless exhausted?

        raise Errno::EMFILE, Reasons.sentence([:unloadable, Reasons.sentence(:no_file)])
      end

      # Requires a gem that a part of memscope needs and memscope itself does not.
      #
      # @param version [String, nil] which versions of the gem are new enough: ">= 2.2"
      # @raise [LoadError] if the gem is missing. The message has the line for the Gemfile, and the command
      def gem(name, part, feature: name, version: nil)
        require feature
        loaded = ::Gem.loaded_specs[name] if version
        fits = loaded.nil? || ::Gem::Requirement.new(version).satisfied_by?(loaded.version)
        raise missing(name, part, version) unless fits
      rescue LoadError => e
        raise unless e.path == feature

        raise missing(name, part, version)
      end

      # Loads the constants that a module would autoload later, and theirs, but no formats of profiles. If the file of a
      # constant were required while the constant is still to be autoloaded, Ruby would forget where the constant is
      # defined.
      def resolve(namespace, names = namespace.constants(false) - %i[Pprof Speedscope])
        names.each do |name|
          constant = namespace.const_get(name, false)
          resolve(constant) if constant.is_a?(Module) && constant.name == "#{namespace}::#{name}"
        end
      end

      # Loads all that a process would load later. Files at the root of a room come first: the other files reopen
      # classes and modules that these define. The extension's substitute is left out.
      def everything
        eager = EAGER.map { |room| "#{LIBRARY}/#{room}/" }
        resolve(Memscope, FILES.select { |_name, file| file.start_with?(*eager) }.keys)
        names = Dir.glob("{#{EAGER.join(',')}}/**/*.rb", base: LIBRARY).grep_v(%r{/native/})
        names.sort_by { |name| [name.count("/"), name] }.each { |name| require File.join(LIBRARY, name) }
      end

      private

      def missing(name, part, version)
        LoadError.new(Reasons.sentence([:gem_missing, part, name, [name, *version].map(&:inspect).join(", "), name]))
      end

      def exhausted?
        File.open(__FILE__) { false }
      rescue Errno::EMFILE, Errno::ENFILE
        true
      end
    end
  end
end

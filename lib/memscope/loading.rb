# frozen_string_literal: true

require_relative "reasons"

module Memscope
  # Loads files when they are first used, each file whole: Thread#kill, Thread#raise and Timeout take effect afterwards.
  # A file that is left in the middle can leave a half-defined class behind, or a deadlock of Ruby's own locks.
  #
  # @api private
  module Loading
    # Constants that are loaded only when they are named: commands, pages, hooks, test helpers, formats of a profile.
    APART = %i[Web RackTags SidekiqTags Check Assertions Requires Formats].freeze
    private_constant :APART

    class << self
      # Instead of require_relative for the file of a constant of Memscope that may be autoloaded: while require runs
      # such a file, other threads see the constant half-defined; while autoload does, they wait.
      #
      # @param name [Symbol] a constant of the namespace
      # @return [Module] loaded, together with what it would autoload later
      def unit(name, namespace = Memscope)
        pending = namespace.autoload?(name)
        return namespace.const_get(name, false) if !pending && namespace.const_defined?(name, false)

        whole do
          require file_of(name) unless pending # without the facade
          namespace.const_get(name, false).tap { |constant| resolve(constant) }
        end
      end

      # @param names [Array<Symbol>]
      # @return [void]
      def units(*names) = names.each { |name| unit(name) }

      # @yield loads files
      # @raise [Errno::EMFILE] if they cannot be opened because no descriptor is free
      def whole(&)
        Thread.handle_interrupt(Object => :never, &)
      rescue LoadError, SystemCallError => e
        raise e unless exhausted?

        raise Errno::EMFILE, "memscope cannot load what is used for the first time: " \
                             "#{Reasons.sentence(:no_file)}; Memscope.eager_load! loads it beforehand"
      end

      # Loads what a module would autoload later, and what is in that. If the file of a constant were required while the
      # constant is still to be autoloaded, Ruby would forget where the constant is defined.
      #
      # @param namespace [Module]
      # @return [void]
      def resolve(namespace)
        return unless namespace.is_a?(Module)

        (namespace.constants(false) - APART).each do |name|
          constant = namespace.const_get(name, false)
          resolve(constant) if constant.is_a?(Module) && constant.name == "#{namespace}::#{name}"
        end
      end

      private

      def file_of(name) = File.join(__dir__, "#{name.to_s.gsub(/(?<=[a-z])(?=[A-Z])/, '_').downcase}.rb")

      def exhausted?
        File.open(__FILE__) { false }
      rescue Errno::EMFILE, Errno::ENFILE
        true
      end
    end
  end
end

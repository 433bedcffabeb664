# frozen_string_literal: true

module Memscope
  # The settings of memscope's surfaces in this application. Memscope.configure changes them, Memscope.configuration
  # reads them. SETTINGS lists them all, and docs/configuration.md explains them.
  #
  # Code overrides the environment's MEMSCOPE_* variables, which override the defaults.
  #
  # The first read settles the configuration: it cannot change afterwards, so that all surfaces of a process see the
  # same settings. A forked child can be configured again until it reads the configuration itself.
  class Configuration
    require_relative "configuration/settings"

    # Memscope.configure was called after something had read the configuration.
    class Late < StandardError; end

    OURS = "#{File.dirname(__dir__)}/".freeze
    private_constant :OURS

    @lock = Mutex.new
    @given = {}.freeze

    class << self
      # Implements Memscope.configure.
      # @api private
      def change
        raise ArgumentError, "Memscope.configure: given no block, allowed: { |c| … }" unless block_given?

        refuse_late
        known = values
        given = {}
        yield Builder.new(->(name) { given.fetch(name) { known[name] } }, given.method(:store))
        keep(given.freeze)
      end

      # Implements Rails' `config.memscope`, whose settings take effect immediately.
      # @api private
      def direct = Builder.new(->(name) { so_far.public_send(name) }, ->(name, value) { keep({ name => value }) })

      # Implements Memscope.configuration.
      # @api private
      def current = settled? ? @current : settle(caller_locations)

      # The configuration so far, which may still change: for code that runs before the application is configured, such
      # as a plugin of its server.
      # @api private
      def so_far = settled? ? @current : new(values)

      # One setting so far, for threads that read it repeatedly, and for code that runs before the application is
      # loaded, which may still change it.
      # @api private
      # @return [Object] the setting's value, or its `safe` value if its environment variable is invalid
      def effective(name)
        return so_far.public_send(name) if settled? || name == :logger

        @given.fetch(name) { from_environment(SETTINGS.fetch(name)) }
      rescue ArgumentError
        SETTINGS.fetch(name).safe
      end

      # From now on a variable with an invalid value means the setting's `safe` value instead of an error.
      # @api private
      def excuse_environment
        @excused = true
      end

      # @api private
      # @return [Hash{Symbol => String}] the errors of the environment's variables, by setting
      def environment_errors = SETTINGS.transform_values { |setting| setting.read(ENV).last&.message }.compact

      private :new

      private

      def settled? = @pid == Process.pid

      def settle(callers)
        @lock.synchronize do
          unless settled?
            @current = new(values)
            @user = callers.find { |location| !location.path.start_with?(OURS) } || callers.last
            @pid = Process.pid
          end
          @current
        end
      end

      def keep(given)
        @lock.synchronize do
          refuse_late
          @given = @given.merge(given).freeze
        end
        nil
      end

      def values = SETTINGS.to_h { |name, setting| [name, @given.fetch(name) { from_environment(setting) }] }

      def from_environment(setting)
        value, error = setting.read(ENV)
        raise error if error && !@excused

        value
      end

      def refuse_late
        raise Late, Reasons.sentence([:configured_late, @user.to_s]) if settled?
      end
    end

    # A reader for each of SETTINGS: `rake sig` writes their signatures.
    attr_reader(*(SETTINGS.keys - %i[logger]))

    # @param values [Hash{Symbol => Object}] the values of all settings
    def initialize(values)
      values.each { |name, value| instance_variable_set(:"@#{name}", value) }
      freeze
    end

    # @return [#info, #warn, nil] the configured logger, else Rails.logger if there is one
    def logger = @logger || (::Rails.logger if defined?(::Rails) && ::Rails.respond_to?(:logger))

    # @return [String] without secrets
    def inspect
      shown = SETTINGS.each_value.map { |setting| "#{setting.name}=#{setting.show(public_send(setting.name))}" }
      "#<#{self.class.name} #{shown.join(' ')}>"
    end

    # The block parameter of Memscope.configure: a reader and a writer for each of SETTINGS.
    class Builder
      SETTINGS.each_key do |name|
        define_method(name) { @read.call(name) }
        define_method(:"#{name}=") { |value| @write.call(name, SETTINGS.fetch(name).check(value)) }
      end

      # @api private
      def initialize(read, write)
        @read = read
        @write = write
      end

      # @return [String] without values, as some are secret
      def inspect = "#<#{self.class.name}>"

      private

      def method_missing(name, *)
        given = "the setting #{name.name.delete_suffix('=')}"
        raise Invalid.new(nil, given, SETTINGS.keys.join(", "), call: "Memscope.configure")
      end

      def respond_to_missing?(*) = false
    end
  end
end

# frozen_string_literal: true

require_relative "listener"

module Memscope
  # Runs in a process that `memscope attach` has made load memscope: listens, and keeps a history unless the program
  # keeps one already, until no client has come for half an hour.
  # @api private
  module Attached
    # Seconds without a client after which the process listens no longer.
    IDLE_SECONDS = 1800
    POLL_SECONDS = 1
    LOCK = Mutex.new
    private_constant :LOCK

    # In a thread of its own, which ends when the process listens no longer.
    #
    # @param actions [Boolean, nil] the setting; nil: as the program has set it
    # @raise [Configuration::Late] if it was another one before
    def self.run(actions: nil)
      unless [nil, Loading.unit(:Configuration).so_far.actions].include?(actions)
        Loading.unit(:Configuration).change { |config| config.actions = actions }
      end
      listener = begin_listening
      sleep POLL_SECONDS while listener.open? && Clock.now - listener.last_client < IDLE_SECONDS
      listener.close
      LOCK.synchronize { stop_sampling if @listener.equal?(listener) }
    end

    # The history of an earlier call goes on, even if that is about to end.
    def self.begin_listening
      LOCK.synchronize do
        @listener = Listener.listen(nil)
        History.boot { @sampled = Configuration.effective(:history) } unless History.running?
        @listener
      end
    end

    def self.stop_sampling
      History.stop if @sampled
      @sampled = false
    end
    private_class_method :begin_listening, :stop_sampling

    # The text that a process evaluates to load and run this file. A program that has loaded memscope keeps that one.
    # In a Rails application that has booted, memscope.rb would come too late: it adds to what boots. The text runs
    # within some method of the program, so its variables are its own, and it finds constants from the top.
    #
    # @param paths [Array<String>] directories of the library and of the extension, as the process sees them
    # @return [String] Ruby. If it fails, another thread is named "!" and the error's class, for five seconds, and
    #   the program's standard error has the error
    def self.text(paths, actions:)
      <<~RUBY
        ::Thread.new do |; loaded, own, library, error, told|
          ::Thread.current.report_on_exception = false
          ::Object.new.instance_exec do
            loaded = defined?(::Memscope) && ::Memscope.respond_to?(:ledger)
            own = loaded && $LOADED_FEATURES.any? { |path| path.end_with?("/memscope.rb") }
            library = loaded ? ::File.dirname(::Memscope.method(:ledger).source_location.first, 3) : #{paths.first.dump}
            $LOAD_PATH.unshift(#{paths.map(&:dump).join(', ')})
            require "\#{library}/memscope/setup/facade"
            require "\#{library}/memscope/remote/attached"
            #{paths.size}.times { $LOAD_PATH.shift }
            ::Memscope::Attached.run(actions: own ? nil : #{actions})
          end
        rescue ::Exception => error
          told = ::Thread.new { ::Thread.current.name = "!\#{error.class}"; ::Kernel.sleep 5 }
          ::Kernel.warn "memscope attach: \#{error.full_message(highlight: false)}"
          told.join
        end
      RUBY
    end

    # The text that ends a listener. Its thread must live until it is seen from outside.
    CLOSING_TEXT =
      "::Thread.new { ::Memscope::Listener.current&.close if defined?(::Memscope::Listener); ::Kernel.sleep 1 }"
  end
end

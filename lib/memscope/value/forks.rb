# frozen_string_literal: true

module Memscope
  # Calls listeners after a fork, in the order of `listen`, in the thread that forks. A listener must not raise. Also
  # starts background threads that carry Puma's mark for threads that are safe at a fork.
  # @api private
  module Forks
    # Ruby calls `_fork` for every fork whose child goes on running Ruby, and documents it as the hook for libraries
    # that have threads to restart. Process.daemon does not call it.
    module Hook
      # @api private
      def _fork = super.tap { |pid| Forks.call(pid.zero? ? :child : :parent) }

      # @api private
      def daemon(...) = super.tap { Forks.call(:daemon) }
    end

    @listeners = [].freeze
    @mutex = Mutex.new

    # A forked child inherits its parent's listeners: call this once. `child` is called in the child, which has no other
    # thread yet, `parent` in its parent, `daemon` in the process that Process.daemon continues in. Its parent is gone.
    def self.listen(child: nil, parent: nil, daemon: nil)
      @mutex.synchronize do
        Process.singleton_class.prepend(Hook) if @listeners.empty?
        @listeners = [*@listeners, { child: child, parent: parent, daemon: daemon }.freeze].freeze
      end
    end

    # Starts a thread with the mark that keeps Puma from warning about it at a fork. A new thread inherits the
    # caller's interrupt mask. This one can be killed whatever that mask is.
    def self.background(name, &block)
      thread = Thread.new { Thread.handle_interrupt(Object => :immediate, &block) }
      thread.name = name
      thread.thread_variable_set(:fork_safe, true)
      thread
    end

    def self.call(event) = @listeners.each { |listener| listener[event]&.call }
  end
end

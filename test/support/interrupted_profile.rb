# frozen_string_literal: true

# For children whose profile starts while a thread is interrupted.
module InterruptedProfile
  # Interrupts the main thread when Native.start_profile, or a method that calls it, returns: the profile is running,
  # but the caller does not know it yet.
  INTERRUPT = <<~RUBY
    require "memscope/profile/malloc_profile"
    Memscope.malloc_profile(backend: :imports) { nil }
    at_return = lambda do |name, &interrupt|
      trace = TracePoint.new(:c_return, :return) do |point|
        next unless point.method_id == name

        trace.disable
        interrupt.call
      end
      trace.enable
    end
    attempt = lambda do |name|
      yielded = false
      at_return.call(name) { Thread.main.raise(Interrupt, "as Timeout does") }
      Memscope.malloc_profile(backend: :imports) { yielded = true }
      "not interrupted"
    rescue Interrupt => e
      [e.message, yielded, Memscope::MallocProfile.running?]
    end
  RUBY
end

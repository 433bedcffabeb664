# frozen_string_literal: true

require "securerandom"
require_relative "attached"
require_relative "copy"

module Memscope
  # Makes a process listen that has not loaded memscope: the process evaluates a text at its next safe point, which
  # creates a thread that loads memscope (Native.evaluate_in). See docs/attach.md.
  # @api private
  class Attachment
    WORDS = Words.beside(__FILE__)
    # Seconds for the process to reach a safe point, and then to load memscope.
    SAFE_POINT_SECONDS = 10
    LOADING_SECONDS = 120
    POLL_SECONDS = 0.02
    # The beginnings of a thread's name, which has at most 15 bytes: Configuration::Late and Sockets::Refused.
    LATE = "!Memscope::Conf"
    REFUSED = "!Memscope::Sock"
    # The name of the thread in which Attached.run waits.
    OWN = /\Amemscope-\h{6}\z/

    def initialize(pid)
      @pid = pid
      @client = Client.new(pid)
    end

    # @return [String] what `open` would do, for people
    # @raise [Client::Failed, Client::Unreachable] if it could not do so
    def check
      paths
      WORDS.fill(listens? ? :listens : :possible, pid: @pid, ruby: ruby)
    end

    # Returns once the process listens. A listener that `open` has started begins anew to allow actions.
    #
    # @return [String] for people
    # @raise [Client::Failed, Client::Unreachable] if it does not
    def open(actions: false)
      close if actions && listens? && names(OWN).any?
      return WORDS.fill(:listens, pid: @pid, ruby: ruby) if listens?

      began = Clock.now
      @earlier = failures
      facts = evaluate(Attached.text(paths, actions: actions))
      await_listener
      WORDS.fill(:opened, pid: @pid, pause: Quantity.milliseconds(facts["pause_ns"].to_i / 1000),
                          seconds: format("%.1f", Clock.now - began))
    end

    # Ends the listener that `open` has started, or any other.
    #
    # @return [String] for people
    def close
      return WORDS.fill(:silent, pid: @pid) unless listens?

      evaluate(Attached::CLOSING_TEXT)
      deadline = Clock.now + SAFE_POINT_SECONDS
      sleep POLL_SECONDS while listens? && Clock.now < deadline
      WORDS.fill(listens? ? :not_closed : :closed, pid: @pid)
    end

    private

    def listens? = @client.check && @client.listens?

    # Its version, for which nothing is stopped.
    def ruby = @ruby ||= evaluate("")["ruby"].to_s

    def evaluate(text)
      thread = "memscope-#{SecureRandom.hex(3)}"
      channel, facts = Copy::Channel.open(@pid, SAFE_POINT_SECONDS * 2) do
        Native.evaluate_in(@pid, text, thread, SAFE_POINT_SECONDS * 1000, 0)
      end
      channel.close
      facts
    rescue Copy::Refusal => e
      raise Client::Failed, e.sentence(@pid)
    end

    # The directories of the library and of the extension for its Ruby, which it must see as this process does.
    def paths
      own = ruby.start_with?("#{RUBY_VERSION[/\A\d+\.\d+/]}.")
      extension = Copy::Extension.check(own ? Copy::Extension.own : Copy::Extension.of(@pid, ruby))
      binary = extension[%r{\A(.*)/memscope/\d+\.\d+/memscope\.so\z}, 1]
      gem = %r{\A(?<home>.*)/extensions/[^/]+/[^/]+/(?<name>[^/]+)/}.match(extension) unless own
      library = binary || (gem ? "#{gem[:home]}/gems/#{gem[:name]}/lib" : Copy::Extension::LIBRARY)
      unseen = [library, extension].find { |path| !Native.sees?(@pid, path) }
      raise failed(:unseen, path: unseen) if unseen

      [library, binary || File.dirname(extension, 2)].uniq
    end

    def await_listener
      deadline = Clock.now + LOADING_SECONDS
      until listens?
        error = (failures - @earlier).first&.last
        raise failed(:late) if error&.start_with?(LATE)
        raise failed(:not_opened) if error&.start_with?(REFUSED)
        raise failed(:not_loaded, error: Field.line(error.delete_prefix("!"))) if error
        raise failed(:loading, seconds: LOADING_SECONDS) if Clock.now > deadline

        sleep POLL_SECONDS
      end
    end

    # The threads that tell a failure by their name, which they keep for seconds.
    def failures = names(/\A!/)

    # @return [Array<Array(String, String)>] the paths of threads with such names, and these
    def names(form)
      Dir.glob("/proc/#{@pid}/task/*/comm").filter_map do |path|
        name = SystemCall.attempt { Field.utf8(File.binread(path)).chomp }
        [path, name] if name&.match?(form)
      end
    end

    def failed(text, **figures) = Client::Failed.new(WORDS.fill(text, { pid: @pid, **figures }))
  end
end

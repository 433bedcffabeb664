# frozen_string_literal: true

require_relative "external_process"

module Memscope
  # Other Ruby processes, with the malloc and the verdict that those report that listen.
  # @api private
  module Peers
    # A process, and the name of its proven malloc and the word of its verdict, if it listens and reports them.
    Entry = Struct.new(:process, :malloc, :verdict) do
      # The proven malloc, or else a mapped one, followed by "?", or else "?".
      def malloc_text
        return malloc.name if malloc

        mapped = process.mallocs.map(&:name)
        (mapped - %i[glibc musl] + mapped).first.then { |name| name ? "#{name}?" : "?" }
      end
    end

    # Largest first. With `answers`, queries the processes that listen in parallel, for `patience` seconds in all.
    def self.entries(answers: true, pids: ExternalProcess.rubies - [Process.pid])
      entries = pids.filter_map do |pid|
        Entry.new(ExternalProcess.read(pid, cgroup: false))
      rescue Client::Unreachable
        nil # the process has just ended
      end
      ask_all(entries.select { |entry| entry.process.listens? }) if answers
      entries.sort_by { |entry| [-(entry.process.rss_bytes || 0), entry.process.pid] }
    end

    # The pids of the sockets beside this one.
    def self.beside(path) = Dir.children(File.dirname(path)).filter_map { |name| name[/\A(\d+)\.sock\z/, 1]&.to_i }

    def self.patience = 0.3

    def self.ask_all(entries)
      Memscope.const_get(:Verdict) # is loaded before several threads need it
      deadline = Clock.now + patience
      entries.map { |entry| Thread.new { ask(entry, deadline) } }.each(&:join)
    end

    def self.ask(entry, deadline)
      call = ->(name) { Client.new(entry.process.pid, timeout: [deadline - Clock.now, 0.01].max).call(name) }
      allocator = call.call(:allocator)
      entry.malloc = allocator.name if allocator.proved?
      verdict = call.call(:verdict)
      entry.verdict = verdict.word if verdict.known?
    rescue Client::Unreachable => e
      entry.verdict = "no answer" if e.why == :busy
    rescue Client::Failed, ArgumentError
      nil # a memscope without verdicts
    end
    private_class_method :ask_all, :ask
  end
end

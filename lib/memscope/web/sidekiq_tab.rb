# frozen_string_literal: true

require_relative "../setup/facade"

Memscope::Loading.gem("sidekiq", "memscope/sidekiq_web", feature: "sidekiq/web", version: ">= 7.3")
require "socket"
require_relative "web"

module Memscope
  module Web
    # The tab "Memory" of Sidekiq::Web: its processes with their verdicts, and the memory of their jobs by class.
    # Sidekiq::Web decides who may see it. It only reads, and has no actions.
    #
    #   require "memscope/sidekiq_web"   # beside sidekiq/web, in the process that serves it
    class SidekiqTab < Page
      # A process by its heartbeat in Redis, why it gives no answers, or its answers.
      Row = Struct.new(:process, :reason, :rss, :verdict, :tags) do
        # @return [String]
        def name = "#{process['hostname']}:#{process['pid']}"

        # As of the last heartbeat, unless the process answers.
        def rss_bytes = rss || (process["rss"].to_i * 1024)
      end
      # Below Sidekiq's own pages.
      PATH = "memory"
      # Seconds for an answer of one process, and for those of all.
      PROCESSES = Processes.new(workers: [], timeouts: { reading: 2.0 })
      SECONDS = 3
      private_constant :Row, :PROCESSES, :SECONDS

      # Called by Sidekiq::Web.
      #
      # @return [void]
      def self.registered(application)
        application.get("/#{PATH}") do
          # Sidekiq evaluates the text as a template, so names from processes may not be in it.
          @memscope = SidekiqTab.new(PROCESSES, nil, actions: false).to_html
          erb("<%= @memscope %>")
        end
      end

      # @api private
      # @return [Markup]
      def to_html = render(:sidekiq_tab, self)

      # @api private
      # @return [Array<Row>] the largest first
      def rows
        @deadline ||= Clock.now + SECONDS
        @rows ||= ::Sidekiq::ProcessSet.new(false).map { |process| row(process) }.sort_by { |row| -row.rss_bytes }
      end

      private

      def row(process)
        return Row.new(process, "Another process was too slow, so this one was not read.") if Clock.now > @deadline
        return Row.new(process, "On another machine, in another container, or part of another program.") unless
          own?(process) || beside?(process)

        place = Processes::Place.new(nil, process["pid"])
        read = ->(kind) { processes.fetch(kind, place.pid, sharers: 1) { processes.call(place, kind) } }
        Row.new(process, nil, *%i[rss verdict tags].map(&read))
      rescue HttpError, Client::Unreachable, Invalid => e
        Row.new(process, e.message)
      end

      # Whether it is part of this program (Sidekiq.configure_embed), which has then loaded Sidekiq's components.
      def own?(process)
        defined?(::Sidekiq::Component) && process.identity == Object.new.extend(::Sidekiq::Component).identity
      end

      # Containers can share a hostname, but not their pids: the process of that pid may be another one here.
      def beside?(process)
        process["hostname"] == Socket.gethostname &&
          ExternalProcess.read(process["pid"], cgroup: false).command.to_s.start_with?("sidekiq ")
      end
    end

    ::Sidekiq::Web.configure do |config|
      config.register(SidekiqTab, name: "memscope", tab: "Memory", index: SidekiqTab::PATH)
    end
  end
end

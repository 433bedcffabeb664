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
      # A process by its heartbeat in Redis. `place` is nil if it cannot be read here. `reason` is why it does not
      # answer.
      Row = Struct.new(:process, :place, :reason, :rss, :verdict, :tags) do
        # @return [String]
        def name = "#{process['hostname']}:#{process['pid']}"

        # As of the last heartbeat, unless the process answers.
        def rss_bytes = rss || (process["rss"].to_i * 1024)
      end
      # Below Sidekiq's own pages.
      PATH = "memory"
      ANSWERS = %i[rss verdict tags].freeze
      # In seconds, for one of the answers of all processes.
      PROCESSES = Processes.new(workers: [], timeouts: { reading: 1.5 })
      private_constant :Row, :ANSWERS, :PROCESSES

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
        @rows ||= begin
          rows = ::Sidekiq::ProcessSet.new(false).map { |process| row(process) }
          ANSWERS.each { |kind| ask(rows.reject(&:reason), kind) }
          rows.sort_by { |row| -row.rss_bytes }
        end
      end

      private

      def row(process)
        return Row.new(process, Processes::Place.new(nil, process["pid"])) if own?(process) || beside?(process)

        Row.new(process, nil, "On another machine, in another container, or part of another program.")
      rescue Client::Unreachable, Invalid => e
        Row.new(process, nil, e.message)
      end

      def ask(rows, kind)
        places = rows.map(&:place)
        outcomes = processes.fetch(kind, places, sharers: 1) { processes.call_each(places, kind, timeout: :reading) }
        rows.zip(outcomes) { |row, outcome| outcome.done? ? row[kind] = outcome.result : row.reason = outcome.reason }
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

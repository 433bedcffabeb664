# frozen_string_literal: true

require_relative "../setup/facade"

Memscope::Loading.gem("rack", "memscope/web", version: ">= 2.2")
Memscope.eager_load! # before there are requests
require_relative "application"

module Memscope
  # memscope's pages, as a Rack application to mount:
  #
  #   mount Memscope::Web => "/memscope"            # in config/routes.rb
  #   map("/memscope") { run Memscope::Web }        # in config.ru
  #
  # Five pages, each as HTML, JSON and text, by the extension, else by the Accept header: / (where the memory is, the
  # doctor's findings, the effect of the levers), /history, /objects, /profile and /allocator. / shows the ledger first.
  # The browser then fetches the same page with the findings. Each reading has an address for JSON and text: /ledger,
  # /doctor, /workers, /census, /heap, /arenas, /size_classes, /fragmentation, /ruby_heap and /mappings, which as HTML
  # lead to the page that shows it. /metrics is for Prometheus. POST changes the process: /purge with lever=NAME, or
  # lever=all; /profile with do=start or do=stop. do=gc collects garbage before /doctor or /profile is read.
  #
  # In a Puma cluster with plugin :memscope, a page shows worker N with worker=N, otherwise the first worker.
  # /debug/pprof/heap serves the malloc profile to Pyroscope, Parca and `go tool pprof` as Go programs do. In a cluster,
  # the merged profile of all workers.
  #
  # Closed until `username` and `password`, or `authorize`, are configured. The log names the missing part of a denied
  # request.
  module Web
    APPLICATION = Application.new
    private_constant :APPLICATION

    # @param env [Hash] Rack's environment
    # @return [Array(Integer, Hash, #each)] a Rack response
    def self.call(env) = APPLICATION.call(env)
  end
end

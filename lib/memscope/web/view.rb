# frozen_string_literal: true

require "cgi/escape"
require "erb"
require "uri"
require_relative "../show/report/history"

module Memscope
  module Web
    # HTML that is already escaped.
    #
    # @api private
    class Markup < String
      # @return [Markup] self; String#to_s would return a plain String
      def to_s = self

      # @param value [Object]
      # @return [Markup] the value, escaped for use as text or in an attribute; a Markup unchanged
      def self.of(value) = value.is_a?(self) ? value : new(CGI.escapeHTML(value.to_s))
    end

    # ERB whose <%= %> escapes.
    #
    # @api private
    class Template < ERB
      # The template as a method definition, to be evaluated in the caller's scope. With ERB's own def_method, constants
      # would resolve inside ERB.
      #
      # @param signature [String]
      # @return [String] Ruby
      def method_source(signature) = src.sub(/^(?!#|$)/) { "def #{signature}\n" }.concat("\nend\n")

      # ERB's hook to configure the compiler.
      def set_eoutvar(compiler, eoutvar = "_erbout")
        super
        compiler.insert_cmd = "#{eoutvar}.<< ::Memscope::Web::Markup.of"
      end
    end

    # The scope of the templates in views/: one for each request.
    #
    # @api private
    class View
      include Quantity

      # Titles by path, in the order of the navigation.
      PAGES = { "/" => "Overview", "/history" => "History", "/objects" => "Objects", "/profile" => "Profile",
                "/allocator" => "Allocator" }.freeze
      UNKNOWN = "–"
      private_constant :UNKNOWN

      Dir[File.join(__dir__, "views", "*.erb")].each do |path|
        template = Template.new(File.read(path, encoding: Encoding::UTF_8), trim_mode: "-")
        class_eval(template.method_source("_#{File.basename(path, '.erb')}(subject)"), path, 0)
      end

      # @return [Request]
      attr_reader :request
      # @return [Boolean] whether the levers have buttons
      attr_reader :actions

      # @param request [Request]
      # @param actions [Boolean]
      # @param calls [#call] returns the ClusterCalls
      def initialize(request, actions:, calls:)
        @request = request
        @actions = actions
        @calls = calls
      end

      # @param subject [Object] the object that the template shows
      # @return [Markup]
      def render(template, subject = nil) = Markup.new(public_send(:"_#{template}", subject))

      # @param page [#title, #template] with a `place`, if it shows one process
      # @return [Markup] a whole page
      def page(page)
        @place = page.place if page.respond_to?(:place)
        @refresh = (link("/", findings: 1) if page.respond_to?(:diagnosed?) && !page.diagnosed?)
        @title = page.title
        @content = render(page.template, page)
        render(:layout)
      end

      # @return [Array<ClusterCalls::Place>] the workers to choose from; empty without a cluster
      def places = @places ||= @calls.call.then { |calls| calls.cluster? ? calls.places : [] }

      # @return [String, nil] the index of the worker that all links keep; nil without a cluster
      def worker
        @place ? @place.index&.to_s : request.query["worker"]&.last.to_s[/\A\d{1,4}\z/]
      rescue HttpError # the page itself shows this error
        nil
      end

      # @param path [String] of a page of this application
      # @param worker [Integer, String, nil] the worker that the page is to show
      # @param query [Hash{Symbol => Object}] other parameters; nil ones are left out
      # @return [String] a link to it
      def link(path, worker: self.worker, **query)
        base = path == "/" && !request.base.empty? ? request.base : "#{request.base}#{path}"
        pairs = { worker: worker, **query }.compact
        pairs.empty? ? base : "#{base}?#{URI.encode_www_form(pairs)}"
      end

      # @return [String] a link to an asset
      def asset(name) = "#{request.base}#{Assets::PATHS.fetch(name)}"

      # @param pid [Integer] of the process that the form is about
      # @return [Markup] the fields that all forms have
      def fields(pid)
        Markup.new({ pid: pid, worker: worker }.compact.map do |name, value|
          %(<input type="hidden" name="#{name}" value="#{Markup.of(value)}">)
        end.join("\n"))
      end

      # @return [String] "worker 1, process 4711"
      def process(place) = place.index ? "worker #{place.index}, process #{place.pid}" : "process #{place.pid}"

      # @return [String] MiB without the unit
      def mib(bytes) = bytes ? mebibytes(bytes).tr("-", "−") : UNKNOWN

      # @return [String]
      def number(value) = value ? count(value) : UNKNOWN

      # @return [String] "94.1 %"
      def percent(part, whole) = part && whole&.positive? ? format("%.1f %%", 100.0 * part / whole) : UNKNOWN

      # @return [String] "10:39:44 UTC"
      def clock(time) = time.strftime("%H:%M:%S UTC")

      # @param time [Time] in UTC
      # @return [String] "5 Nov 10:39:44 UTC"
      def moment(time) = time.strftime("%-d %b %H:%M:%S UTC")

      # @return [String] the text with a full stop, and with a capital unless it begins with an allocator's name
      def sentence(text) = "#{text.sub(/\A(?!glibc|jemalloc)./, &:upcase)}."

      # @param id [Symbol] of a top row of the ledger
      # @return [Integer, nil] its number, the same on all pages
      def self.mark(id) = Memscope::History::ROWS.index(id)&.succ

      # @return [String] as JSON, the label of each row of a history, in the order of their numbers
      def row_labels = JSON.generate(Memscope::History::ROWS.to_h { |row| [row, Terms.series(row)] })

      # @param text [String] may contain code in backquotes
      # @return [Markup]
      def prose(text) = Markup.new(Markup.of(text).gsub(/`([^`]+)`/, '<code>\1</code>'))

      # @return [String] what the machine is predicted to gain by a lever
      def predicted(lever)
        bytes = lever.predicted_gain or return "not predicted"
        bytes == (0..0) ? "nothing" : between(*bytes.minmax).tr("-", "−")
      end
    end
  end
end

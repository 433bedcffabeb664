# frozen_string_literal: true

require "erb"
require_relative "../report/history"
require_relative "../report/tags"

module Memscope
  module Web
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
      include Report::Quantity

      # Titles by path, in the order of the navigation.
      PAGES = { "/" => "Overview", "/history" => "History", "/arenas" => "Arenas", "/size_classes" => "Size classes",
                "/ruby_heap" => "Ruby heap", "/census" => "Census", "/heap" => "Heap graph", "/mappings" => "Mappings",
                "/workers" => "Workers", "/profile" => "Profile" }.freeze
      UNKNOWN = "–"
      # Stands for the content in a layout that is sent in two parts.
      CONTENT = "\0"
      private_constant :UNKNOWN, :CONTENT

      Dir[File.join(__dir__, "views", "*.erb")].each do |path|
        template = Template.new(File.read(path, encoding: Encoding::UTF_8), trim_mode: "-")
        class_eval(template.method_source("_#{File.basename(path, '.erb')}(subject)"), path, 0)
      end

      # @return [Request]
      attr_reader :request
      # @return [Boolean] whether the levers have buttons
      attr_reader :actions
      # @return [String] the token of this page's forms: the one in the cookie, else a new one
      attr_reader :token

      # @param request [Request]
      # @param actions [Boolean]
      # @param calls [#call] returns the ClusterCalls
      def initialize(request, actions:, calls:)
        @request = request
        @actions = actions
        @calls = calls
        @token = Forgery.cookie(request.env) || Forgery.token
      end

      # @param subject [Object] the object that the template shows
      # @return [Markup]
      def render(template, subject = nil) = Markup.new(public_send(:"_#{template}", subject))

      # @param page [#title, #template] with a `place`, if it shows one process
      # @return [Markup] a whole page
      def page(page)
        @place = page.place if page.respond_to?(:place)
        @refresh = (link("/doctor") if page.respond_to?(:diagnosed?) && !page.diagnosed?)
        @title = page.title
        @content = render(page.template, page)
        render(:layout)
      end

      # @param title [String]
      # @param template [Symbol] the template that says what is running
      # @param subject [Object] the object that the template shows
      # @param place [ClusterCalls::Place, nil] the process of the page
      # @return [String] the first part of a page that is sent while something runs
      def beginning(title, template, subject, place: nil)
        @title = title
        @place = place
        @content = Markup.new(CONTENT)
        before, @after = render(:layout).split(CONTENT)
        before + render(template, subject)
      end

      # @param place [ClusterCalls::Place]
      # @return [String] a line saying that this process's purge begins
      def step(place) = "<p class=\"fine\">#{Markup.of(place.to_s.capitalize)} …</p>\n"

      # @param page [#template] the result
      # @return [String] the last part
      def ending(page) = "</section>\n#{render(page.template, page)}#{@after}"

      # @return [Hash{String => String}] the titles of the pages that have something to show, by path
      def menu
        empty = [*("/size_classes" unless Native.allocator[:name] == :jemalloc), *("/workers" if places.empty?)]
        PAGES.reject { |path, title| empty.include?(path) && title != @title }
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
        pairs = { worker: worker, **query }.compact.map { |name, value| "#{name}=#{value}" }
        pairs.empty? ? base : "#{base}?#{pairs.join('&')}"
      end

      # @return [String] a link to an asset
      def asset(name) = "#{request.base}#{Assets.path(name)}"

      # @return [String] MiB without the unit
      def mib(bytes) = bytes ? mebibytes(bytes).tr("-", "−") : UNKNOWN

      # @return [String] "+1.2", "−3.4", "0.0"
      def signed_mib(bytes) = bytes ? signed_mebibytes(bytes).tr("-", "−") : UNKNOWN

      # @return [String]
      def number(value) = value ? count(value) : UNKNOWN

      # @return [String] "2,987", "3.4"
      def decimal(value) = value ? Report::TagsPage.decimal(value) : UNKNOWN

      # @return [String] the text as a parameter of `link`
      def encoded(text) = URI.encode_www_form_component(text)

      # @return [String] "94.1 %"
      def percent(part, whole) = part && whole&.positive? ? format("%.1f %%", 100.0 * part / whole) : UNKNOWN

      # @return [String] "10:39:44 UTC"
      def clock(time) = time.strftime("%H:%M:%S UTC")

      # @param time [Time] in UTC
      # @return [String] "5 Nov 10:39:44 UTC"
      def moment(time) = time.strftime("%-d %b %H:%M:%S UTC")

      # @return [String] the text with a full stop, and with a capital unless it begins with an allocator's name
      def sentence(text) = "#{text.sub(/\A(?!glibc|jemalloc)./, &:upcase)}."

      # @return [String] a row's path in words: "Ruby heap › free slots"
      def path_words(path) = path.to_s.split("/").map { |id| History.label(id.to_sym) }.join(" › ")

      # @return [String, nil] a link to this page in another format, for the same worker; nil if the page answers a form
      def data_link(extension)
        link("#{request.path == '/' ? '/ledger' : request.path}.#{extension}") unless request.verb == "POST"
      end

      # @param overview [Pages::Overview]
      # @return [String] the bar in words
      def bar_label(overview)
        shares = overview.branches.map { |branch| "#{branch.row.label} #{format('%.1f', 100 * branch.share)} %" }
        "The resident set by owner: #{shares.join(', ')}"
      end

      # @param branch [Pages::Overview::Branch]
      # @return [Array(Float, Float)] in use and unused, as shares of the RSS
      def branch_shares(branch)
        held = branch.row.bytes.positive? ? branch.share * branch.held_bytes / branch.row.bytes : 0.0
        [branch.share - held, held]
      end

      # @param id [Symbol] of a top row of the ledger
      # @return [Integer, nil] its number, the same on all pages
      def self.mark(id) = Memscope::History::ROWS.index(id)&.succ

      # @return [String] as JSON, the label of each row of a history, in the order of their numbers
      def row_labels = JSON.generate(Memscope::History::ROWS.to_h { |row| [row, History.label(row)] })

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

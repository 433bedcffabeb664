# frozen_string_literal: true

module Memscope
  module Web
    # HTML that is already escaped.
    # @api private
    class Markup < String
      # @return [Markup] self; String#to_s would return a plain String
      def to_s = self

      # @return [Markup] the value, escaped for use as text or in an attribute; a Markup unchanged
      def self.of(value) = value.is_a?(self) ? value : new(CGI.escapeHTML(value.to_s))
    end

    # ERB whose <%= %> escapes.
    # @api private
    class Template < ERB
      # ERB's hook to configure the compiler.
      def set_eoutvar(compiler, eoutvar = "_erbout")
        super
        compiler.insert_cmd = "#{eoutvar}.<< ::Memscope::Web::Markup.of"
      end
    end

    # The answer to one request: HTML by the template with the page's own name, JSON and text by its readings. Also the
    # scope of the templates in views/.
    # @api private
    class Page
      include Quantity

      PAGES = { "/" => "Overview", "/history" => "History", "/objects" => "Objects", "/profile" => "Profile",
                "/allocator" => "Allocator" }.freeze
      UNKNOWN = "–"

      Dir[File.join(__dir__, "views", "*.erb")].each do |path|
        template = Template.new(File.read(path, encoding: Encoding::UTF_8), trim_mode: "-")
        # With ERB's def_method, constants would resolve inside ERB.
        source = "def _#{File.basename(path, '.erb')}(subject)\n#{template.src}\nend".force_encoding(Encoding::UTF_8)
        class_eval(source, path, -1)
      end

      attr_reader :request, :processes, :actions, :collected, :outcomes

      # @param actions [Boolean] whether the levers have buttons
      # @param collected [Purge::Result, nil] of the full GC that the form requested before this page is read
      # @param outcomes [Array<Processes::Outcome>, nil] the form's outcome in each process
      # @param taken [Hash{Symbol => Array<Reading>}] the readings that the form took, by name
      def initialize(processes, request, actions:, form: nil, collected: nil, outcomes: nil, taken: {})
        @processes = processes
        @request = request
        @actions = actions
        @form = form
        @collected = collected
        @outcomes = outcomes
        @taken = taken
      end

      def template = self.class.name[/\w+\z/].downcase.to_sym

      def title = template.name.capitalize

      # @return [Processes::Place] the process that the page shows
      def place = @place ||= @processes.place(form)

      def data(name)
        public_send(name) or raise HttpError.of(404, :not_taken, name: name, place: place, pid: place.pid)
      end

      # @return [String] the page's only reading, or an object of them by name
      def to_json(*) = (names.one? ? public_send(names.first) : names.to_h { |name| [name, public_send(name)] }).to_json

      def to_s(**) = names.filter_map { |name| public_send(name)&.to_s(unicode: true) }.join("\n\n")

      def html(subject = self)
        @title = subject.title
        @content = render(subject.template, subject)
        render(:layout)
      end

      private

      def form = @form ||= request.query

      def names = self.class::READINGS

      def read(kind, **options) = @processes.read(place, kind, **options)

      # @return [Object] the allowed value that the query names
      def choice(name, allowed, default) = HttpError.choose(name, @request.query[name]&.last || default, allowed)

      def render(template, subject = nil) = Markup.new(public_send(:"_#{template}", subject))

      # @return [Array<Processes::Place>] the workers to choose from; empty without a cluster
      def places = @places ||= @processes.places

      # @return [String, nil] the address of the same page with its slow readings; nil if it has all
      def refresh = nil

      # @return [String, nil] the index of the worker that all links keep; nil without a cluster
      def worker
        place.index&.to_s
      rescue HttpError # the page itself shows this error
        nil
      end

      # @param query [Hash{Symbol => Object}] other parameters; nil ones are left out
      def link(path, worker: self.worker, **query) = request.link(path, { worker: worker, **query }.compact)

      def asset(name) = "#{request.base}/assets/#{name}?#{Assets::ALL.fetch("/assets/#{name}").digest}"

      # @return [String] "worker 1, process 4711"
      def process(place) = place.index ? "worker #{place.index}, process #{place.pid}" : "process #{place.pid}"

      # @return [String] MiB without the unit
      def mib(bytes) = bytes ? mebibytes(bytes).tr("-", "−") : UNKNOWN

      def number(value) = value ? count(value) : UNKNOWN

      # @return [String] "94.1 %"
      def percent(part, whole) = part && whole&.positive? ? format("%.1f %%", 100.0 * part / whole) : UNKNOWN

      # @return [String] "10:39:44 UTC"
      def clock(time) = time.strftime("%H:%M:%S UTC")

      # @return [String] "5 Nov 10:39:44 UTC"
      def moment(time) = time.strftime("%-d %b %H:%M:%S UTC")

      # @return [String] the text with a full stop, and with a capital unless it begins with an allocator's name
      def sentence(text) = "#{text.sub(/\A(?!glibc|jemalloc)./, &:upcase)}."

      # @return [String] as JSON, the label of each row of a history, in the order of their numbers
      def row_labels = JSON.generate(Memscope::History::ROWS.to_h { |row| [row, Terms.series(row)] })

      # @param text [String] may contain code in backquotes
      def prose(text) = Markup.new(Markup.of(text).gsub(/`([^`]+)`/, '<code>\1</code>'))

      # @return [String] the machine's predicted gain by a lever
      def predicted(lever)
        bytes = lever.predicted_gain or return "not predicted"
        bytes == (0..0) ? "nothing" : between(*bytes.minmax).tr("-", "−")
      end
    end
  end
end

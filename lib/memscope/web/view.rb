# frozen_string_literal: true

require_relative "../report"
require_relative "assets"
require_relative "drawing"
require_relative "forgery"
require_relative "template"

module Memscope
  module Web
    # What the templates in views/ are rendered in: one for each request.
    #
    # @api private
    class View
      include Report::Quantity

      # In the order of the navigation.
      PAGES = { "/" => "Overview", "/arenas" => "Arenas", "/size_classes" => "Size classes",
                "/ruby_heap" => "Ruby heap", "/mappings" => "Mappings", "/workers" => "Workers",
                "/profile" => "Profile" }.freeze
      UNKNOWN = "–"
      DIRECTORY = File.join(__dir__, "views")
      private_constant :UNKNOWN, :DIRECTORY

      Dir[File.join(DIRECTORY, "*.erb")].each do |path|
        class_eval(Template.load(path).method_source("_#{File.basename(path, '.erb')}(subject)"), path, 0)
      end

      # @return [Request]
      attr_reader :request
      # @return [Boolean] whether the levers have buttons
      attr_reader :actions

      # @param request [Request]
      # @param actions [Boolean]
      def initialize(request, actions:)
        @request = request
        @actions = actions
      end

      # @param subject [Object] what the template shows
      # @return [Markup]
      def render(template, subject = nil) = Markup.new(public_send(:"_#{template}", subject))

      # @return [Markup] a whole page
      def page(title, template, subject)
        @title = title
        @content = render(template, subject)
        render(:layout)
      end

      # @return [String] a link to a path of this application
      def link(path) = path == "/" && !request.base.empty? ? request.base : "#{request.base}#{path}"

      # @return [String] a link to an asset
      def asset(name) = link(Assets.path(name))

      # @return [String] MiB without the unit
      def mib(bytes) = bytes ? mebibytes(bytes) : UNKNOWN

      # @return [String] "+1.2", "−3.4", "0.0"
      def signed_mib(bytes)
        return UNKNOWN unless bytes

        text = mebibytes(bytes.abs)
        return text if text == "0.0"

        bytes.negative? ? "−#{text}" : "+#{text}"
      end

      # @return [String]
      def number(value) = value ? count(value) : UNKNOWN

      # @return [String] "94.1 %"
      def percent(part, whole)
        part && whole&.positive? ? format("%.1f %%", 100.0 * part / whole) : UNKNOWN
      end

      # @return [String] "10:39:44 UTC"
      def clock(time) = time.strftime("%H:%M:%S UTC")

      # @return [String] "malloc › main heap" of a row's path
      def path_words(path) = path.to_s.split("/").map { |id| id.tr("_", " ") }.join(" › ")

      # @return [String, nil] this page in another format, of the same worker; nil for the answer to a form
      def data_link(ending)
        return if request.verb == "POST"

        worker = request.query["worker"]&.last.to_s[/\A\d{1,4}\z/] if request.path == "/profile"
        "#{link(request.path == '/' ? '/ledger' : request.path)}.#{ending}#{"?worker=#{worker}" if worker}"
      end

      # @param overview [Pages::Overview]
      # @return [String] the bar in words
      def bar_label(overview)
        shares = overview.branches.map { |branch| "#{branch.row.label} #{format('%.1f', 100 * branch.share)} %" }
        "The resident set by owner: #{shares.join(', ')}"
      end

      # @param branch [Pages::Overview::Branch]
      # @return [Array(Float, Float)] in use and held, as shares of the RSS
      def branch_shares(branch)
        held = branch.row.bytes.positive? ? branch.share * branch.held_bytes / branch.row.bytes : 0.0
        [branch.share - held, held]
      end

      # @param text [String] with code in backquotes
      # @return [Markup]
      def prose(text) = Markup.new(Markup.of(text).gsub(/`([^`]+)`/, '<code>\1</code>'))

      # @return [String] of what a lever will return
      def predicted(lever)
        least = lever.predicted_bytes
        most = lever.predicted_max_bytes
        return "known afterwards" if least.nil? || most.nil?
        return "nothing now" if most.zero?

        between(least, most)
      end
    end
  end
end

# frozen_string_literal: true

require_relative "pages/overview"
require_relative "pages/profile"
require_relative "pages/readings"
require_relative "pages/returned"
require_relative "view"

module Memscope
  module Web
    # The pages by path, and their responses.
    #
    # @api private
    module Pages
      # Those that answer GET.
      ALL = { "/" => Overview, "/ledger" => OfLedger, "/doctor" => OfDiagnosis, "/arenas" => Arenas,
              "/size_classes" => SizeClasses, "/ruby_heap" => RubyHeap, "/mappings" => Mappings,
              "/workers" => Workers, "/profile" => Profile }.freeze

      module_function

      # @param page [Page, Returned, ReturnedByWorkers]
      # @param request [Request]
      # @param actions [Boolean] whether the process may be changed from here
      # @return [Array(Integer, Hash, Array<String>)]
      def response(page, request, actions)
        case request.format
        when :json then Response.of(200, :json, "#{page.json}\n")
        when :text then Response.of(200, :text, page.text)
        else html(200, page, View.new(request, actions: actions))
        end
      end

      # @param error [HttpError]
      # @param request [Request]
      # @return [Array(Integer, Hash, Array<String>)]
      def error(error, request)
        return html(error.status, error, View.new(request, actions: false), error.headers) if request.format == :html

        Response.sentence(error.status, request.format, error.message, error.headers)
      end

      def html(status, page, view, headers = {})
        Response.of(status, :html, view.page(page), { **headers, **Forgery.header(view.request, view.token) })
      end
      private_class_method :html
    end
  end
end

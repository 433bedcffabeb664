# frozen_string_literal: true

require_relative "pages/page"
require_relative "pages/overview"
require_relative "pages/arenas"
require_relative "pages/size_classes"
require_relative "pages/ruby_heap"
require_relative "pages/mappings"
require_relative "pages/workers"
require_relative "pages/profile"
require_relative "pages/returned"
require_relative "pages/returned_by_workers"
require_relative "response"
require_relative "view"

module Memscope
  module Web
    # Everything that can be looked at, by path.
    #
    # @api private
    module Pages
      # What each path shows.
      ALL = { "/" => Overview, "/ledger" => OfLedger, "/doctor" => OfDiagnosis, "/arenas" => Arenas,
              "/size_classes" => SizeClasses, "/ruby_heap" => RubyHeap, "/mappings" => Mappings,
              "/workers" => Workers, "/profile" => Profile }.freeze

      module_function

      # @param page [Page]
      # @param request [Request]
      # @param actions [Boolean] whether the process may be changed from here
      # @return [Array(Integer, Hash, Array<String>)]
      def response(page, request, actions)
        case request.format
        when :json then Response.of(200, :json, "#{page.json}\n")
        when :text then Response.of(200, :text, page.text)
        else html(200, View.new(request, actions: actions).page(page.title, page.template, page), request)
        end
      end

      # @param refusal [Refusal]
      # @param request [Request]
      # @return [Array(Integer, Hash, Array<String>)]
      def refusal(refusal, request)
        body = View.new(request, actions: false).page("Not here", :refusal, refusal)
        html(refusal.status, body, request, refusal.headers)
      end

      def html(status, body, request, headers = {})
        headers = { **headers, "set-cookie" => cookie(request) } unless request.token_known?
        Response.of(status, :html, body, headers)
      end

      # Readable by this application only, and sent with requests from its own pages only.
      def cookie(request)
        path = request.base.match?(%r{\A(?:/[\w.~-]+)+\z}) ? request.base : "/"
        "#{Forgery::COOKIE}=#{request.token}; path=#{path}; httponly; samesite=strict#{'; secure' if request.secure?}"
      end
      private_class_method :html, :cookie
    end
  end
end

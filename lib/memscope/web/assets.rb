# frozen_string_literal: true

require "digest"

module Memscope
  module Web
    # Styles, scripts and the icon, read when this file is loaded, so that no part of a request becomes a file's path.
    #
    # @api private
    module Assets
      # Media types by file name.
      TYPES = { "memscope.css" => "text/css; charset=utf-8", "memscope.js" => "text/javascript; charset=utf-8",
                "chart.js" => "text/javascript; charset=utf-8",
                "uPlot.iife.min.js" => "text/javascript; charset=utf-8", "uPlot.min.css" => "text/css; charset=utf-8",
                "icon.svg" => "image/svg+xml" }.freeze

      # Files that are served as the beginning of an asset, by the asset's name.
      BEGINNINGS = { "memscope.css" => "base.css" }.freeze

      Asset = Struct.new(:type, :body, :digest)
      ALL = TYPES.to_h do |name, type|
        files = [*BEGINNINGS[name], name]
        body = files.map { |file| File.binread(File.join(__dir__, "assets", file)) }.join.freeze
        [name, Asset.new(type, body, Digest::SHA256.hexdigest(body)[0, 16].freeze).freeze]
      end.freeze
      private_constant :BEGINNINGS, :Asset, :ALL

      module_function

      # @param name [String] a key of TYPES
      # @return [String] the asset's path below the mount point
      def path(name) = "/assets/#{name}?#{ALL.fetch(name).digest}"

      # @param path [String, nil] the request's path
      # @return [String, nil] a key of TYPES; nil for any other path
      def find(path) = TYPES.keys.find { |name| path == "/assets/#{name}" }

      # The asset may be cached for ever, since its URL contains a digest of its content.
      #
      # @param name [String] a key of TYPES
      # @return [Array(Integer, Hash, Array<String>)]
      def response(name)
        Response.of(200, ALL[name].type, ALL[name].body, "cache-control" => "private, max-age=31536000, immutable")
      end
    end
  end
end

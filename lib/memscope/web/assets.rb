# frozen_string_literal: true

require "digest"

module Memscope
  module Web
    # Style, script and icon. All are read when this is loaded: no part of a request ever becomes a path.
    #
    # @api private
    module Assets
      # What a file is served as, by its name.
      TYPES = { "memscope.css" => "text/css; charset=utf-8", "memscope.js" => "text/javascript; charset=utf-8",
                "uPlot.iife.min.js" => "text/javascript; charset=utf-8", "uPlot.min.css" => "text/css; charset=utf-8",
                "icon.svg" => "image/svg+xml" }.freeze

      # What begins with another file.
      BEGINNINGS = { "memscope.css" => "base.css" }.freeze

      Asset = Struct.new(:type, :body, :digest)
      ALL = TYPES.to_h do |name, type|
        files = [*BEGINNINGS[name], name]
        body = files.map { |file| File.binread(File.join(__dir__, "assets", file)) }.join.freeze
        [name, Asset.new(type, body, Digest::SHA256.hexdigest(body)[0, 16].freeze).freeze]
      end.freeze
      # Its URL names its content.
      CACHING = { "cache-control" => "private, max-age=31536000, immutable" }.freeze
      private_constant :BEGINNINGS, :Asset, :ALL, :CACHING

      module_function

      # @param name [String] of TYPES
      # @return [String] its path below the mount point
      def path(name) = "/assets/#{name}?#{ALL.fetch(name).digest}"

      # @param path [String] of the request
      # @return [Array(Integer, Hash, Array<String>), nil] nil where there is none
      def response(path)
        asset = ALL[path.delete_prefix("/assets/")] if path.start_with?("/assets/")
        Response.of(200, asset.type, asset.body, CACHING) if asset
      end
    end
  end
end

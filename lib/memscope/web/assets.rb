# frozen_string_literal: true

require "digest"

module Memscope
  module Web
    # Styles, scripts and the icon, read when this file is loaded, so that no part of a request becomes a file's path.
    #
    # @api private
    module Assets
      Asset = Struct.new(:type, :body)
      # Media types by file name.
      TYPES = { "memscope.css" => "text/css; charset=utf-8", "memscope.js" => "text/javascript; charset=utf-8",
                "chart.js" => "text/javascript; charset=utf-8",
                "uPlot.iife.min.js" => "text/javascript; charset=utf-8", "uPlot.min.css" => "text/css; charset=utf-8",
                "icon.svg" => "image/svg+xml" }.freeze
      # Files that are served as the beginning of an asset, by the asset's name.
      BEGINNINGS = { "memscope.css" => "base.css" }.freeze
      # By path below the mount point.
      ALL = TYPES.to_h do |name, type|
        files = [*BEGINNINGS[name], name]
        body = files.map { |file| File.binread(File.join(__dir__, "assets", file)) }.join.freeze
        ["/assets/#{name}", Asset.new(type, body).freeze]
      end.freeze
      private_constant :TYPES, :BEGINNINGS, :Asset

      # The same paths by name, each with a digest of the content.
      PATHS = ALL.to_h do |path, asset|
        [path.delete_prefix("/assets/"), "#{path}?#{Digest::SHA256.hexdigest(asset.body)[0, 16]}".freeze]
      end.freeze
    end
  end
end

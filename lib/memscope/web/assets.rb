# frozen_string_literal: true

require "digest"
require "rack/mime"

module Memscope
  module Web
    # Styles, scripts and the icon, read when this file is loaded, so that no part of a request becomes a file's path.
    # @api private
    module Assets
      Asset = Struct.new(:type, :body)
      NAMES = %w[memscope.css memscope.js chart.js uPlot.iife.min.js uPlot.min.css icon.svg].freeze
      # Files that are served as the beginning of an asset, by the asset's name.
      BEGINNINGS = { "memscope.css" => "base.css" }.freeze
      # By path below the mount point.
      ALL = NAMES.to_h do |name|
        files = [*BEGINNINGS[name], name]
        body = files.map { |file| File.binread(File.join(__dir__, "assets", file)) }.join.freeze
        ["/assets/#{name}", Asset.new(::Rack::Mime.mime_type(File.extname(name)), body).freeze]
      end.freeze

      # The same paths by name, each with a digest of the content.
      PATHS = ALL.to_h do |path, asset|
        [path.delete_prefix("/assets/"), "#{path}?#{Digest::SHA256.hexdigest(asset.body)[0, 16]}".freeze]
      end.freeze
    end
  end
end

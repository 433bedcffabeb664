# frozen_string_literal: true

module Memscope
  module Web
    # Styles, scripts and the icon, read when this file is loaded, so that no part of a request becomes a file's path.
    # @api private
    module Assets
      # `digest` is the beginning of a digest of the content.
      Asset = Struct.new(:type, :body, :digest)
      NAMES = %w[memscope.css memscope.js chart.js uPlot.iife.min.js uPlot.min.css icon.svg].freeze
      # Files that are served as the beginning of an asset, by the asset's name.
      BEGINNINGS = { "memscope.css" => "base.css" }.freeze
      # By path below the mount point.
      ALL = NAMES.to_h do |name|
        body = [*BEGINNINGS[name], name].map { |file| File.binread(File.join(__dir__, "assets", file)) }.join.freeze
        type = ::Rack::Mime.mime_type(File.extname(name))
        ["/assets/#{name}", Asset.new(type, body, Digest::SHA256.hexdigest(body)[0, 16].freeze).freeze]
      end.freeze
    end
  end
end

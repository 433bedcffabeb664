# frozen_string_literal: true

require "rbconfig"

module Memscope
  class Profile < Reading
    # Which library a file belongs to, judged by the file's path.
    #
    # @api private
    module Libraries
      STANDARD = "Ruby standard library"
      APPLICATION = "application"

      # …/gems/nokogiri-1.15.4-x86_64-linux/…, …/extensions/x86_64-linux/3.1.0/nokogiri-1.15.4/…
      GEM = %r{/(?:gems|extensions/[^/]+/[^/]+)/(?<name>[^/]+)-(?<version>\d[^/-]*)(?:-[^/]+)?/}
      # …/bundler/gems/rails-1c2d3e4f5a6b/…
      CHECKOUT = %r{/bundler/gems/(?:extensions/[^/]+/[^/]+/)?(?<name>[^/]+)-(?<version>\h{7,40})/}
      INTERNAL = /\A<internal:/
      # The directories of this Ruby; gems installed below them are matched before these.
      OWN = %w[rubylibdir rubyarchdir vendordir].filter_map { |name| RbConfig::CONFIG[name] }.map { |path| "#{path}/" }
                                                .freeze
      # memscope's own code, as a gem or a checkout.
      MEMSCOPE = Field.text("#{File.expand_path('..', __dir__)}/")
      # The C library, Ruby, allocators and language runtimes.
      RUNTIME = /\A(?:lib(?:c|m|dl|rt|pthread|ruby|jemalloc|mimalloc|tcmalloc|stdc\+\+|gcc_s)\b|
                     ld-|ruby\d*(?:\.\d+)?\z|memscope\.)/x
      # The gems that a request or a job passes through on its way to the application.
      FRAMEWORK = /\A(?:rack(?:-[\w-]+)?|puma|rails|railties|sidekiq|zeitwerk|action(?:pack|view|mailer|cable)|
                       active(?:support|job|record|model))[ ]/x
      private_constant :GEM, :CHECKOUT, :INTERNAL, :OWN, :RUNTIME, :FRAMEWORK

      module_function

      # @param frame [Hash{Symbol => Object}] from the extension
      # @return [Hash{Symbol => Object}] with its library added, if it is a line of Ruby
      def attributed(frame)
        line = frame[:path] if frame[:kind] == :ruby && frame[:library].nil?
        line ? frame.merge(library: of_line(line)) : frame
      end

      # @param path [String] of a Ruby file
      # @return [String]
      def of_line(path)
        path = Field.text(path)
        return STANDARD if path.match?(INTERNAL)
        return "memscope #{VERSION}" if path.start_with?(MEMSCOPE)

        gem(path) || (standard?(path) ? STANDARD : APPLICATION)
      end

      # @param path [String, nil] of a shared object
      # @return [String, nil] name and version of the gem for a gem's extension, STANDARD for one of Ruby's own,
      #   otherwise the file's name
      def of_object(path) = path && (gem(path) || (standard?(path) ? STANDARD : File.basename(path)))

      # @param path [String, nil] of a shared object
      # @return [Boolean] whether it allocates on behalf of its callers
      def runtime?(path) = !path.nil? && File.basename(path).match?(RUNTIME)

      # @param library [String, nil] of a Ruby line
      # @return [Boolean] whether it belongs to Rack, Puma, Rails or Sidekiq
      def framework?(library) = library.to_s.match?(FRAMEWORK)

      # @return [String, nil] "nokogiri 1.15.4"
      def gem(path)
        found = path.match(CHECKOUT) || path.match(GEM)
        found && "#{found[:name]} #{found[:version]}"
      end

      def standard?(path) = OWN.any? { |directory| path.start_with?(directory) }
      private_class_method :gem, :standard?
    end
    private_constant :Libraries
  end
end

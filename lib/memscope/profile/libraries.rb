# frozen_string_literal: true

module Memscope
  class Profile < Reading
    # Which library a file belongs to, judged by the file's path.
    # @api private
    module Libraries
      STANDARD = "Ruby standard library"
      APPLICATION = "application"

      # …/gems/nokogiri-1.15.4-x86_64-linux/…, …/extensions/x86_64-linux/3.1.0/nokogiri-1.15.4/…
      GEM = %r{/(?:gems|extensions/[^/]+/[^/]+)/(?<name>[^/]+)-(?<version>\d[^/-]*)(?:-[^/]+)?/}
      # …/bundler/gems/rails-1c2d3e4f5a6b/…
      CHECKOUT = %r{/bundler/gems/(?:extensions/[^/]+/[^/]+/)?(?<name>[^/]+)-(?<version>\h{7,40})/}
      INTERNAL = /\A<internal:/
      # Code given to eval, since Ruby 3.3. The path is of the file that called eval.
      EVALUATED = /\A\(eval at (?<path>.+):\d+\)\z/m
      OWN = "memscope #{VERSION}".freeze
      # memscope's own code, as a gem or a checkout.
      MEMSCOPE = Field.utf8("#{File.expand_path('..', __dir__)}/")
      # Methods that run somebody else's code under a tag. Their allocations are charged to their caller.
      TAGS = /\b(?:Memscope(?:::MallocProfile)?\.tag(?:_name)?|Memscope::(?:Rack|Sidekiq)\w+#\w+)\z/
      # Gems that memscope itself calls. Applications may install newer versions of them than the standard library's.
      CALLED = /\A(?:json|erb|rack|digest|securerandom|tempfile|optparse|uri|net-http|zlib|time|socket|openssl) /
      # The C library, Ruby, allocators and language runtimes.
      RUNTIME = /\A(?:lib(?:c|m|dl|rt|pthread|ruby|jemalloc|mimalloc|tcmalloc|stdc\+\+|gcc_s)\b|
                     ld-|ruby\d*(?:\.\d+)?\z|memscope\.)/x
      # The gems that a request or a job passes through on its way to the application.
      FRAMEWORK = /\A(?:memscope|rack(?:-[\w-]+)?|puma|rails|railties|sidekiq|zeitwerk|action(?:pack|view|mailer|cable)|
                       active(?:support|job|record|model))[ ]/x

      module_function

      def real(path) = SystemCall.attempt { File.realpath(path) } || path

      # The directories of this Ruby. Gems installed below them are matched first.
      RUBYS = %w[rubylibdir rubyarchdir vendordir sitedir].filter_map { |name| RbConfig::CONFIG[name] }
                                                          .flat_map { |path| [path, real(path)] }.uniq
                                                          .map { |path| "#{path}/" }.freeze

      # Adds the library to a frame (from the extension) that is a line of Ruby.
      def attributed(frame, application)
        line = frame[:path] if frame[:kind] == :ruby && frame[:library].nil?
        line ? frame.merge(library: of_line(line, application)) : frame
      end

      # True if memscope allocated for itself: the nearest line outside of the standard library and of the gems that
      # memscope calls is its own. `frames` are from `attributed`, the allocating function first.
      def memscopes?(frames)
        nearest = frames.find { |frame| frame[:kind] == :state || (frame[:kind] == :ruby && !called?(frame)) }
        !nearest.nil? && nearest[:library] == OWN && !nearest[:name].match?(TAGS)
      end

      # Without an application, gems are only known by their paths.
      def of_line(path, application = nil)
        path = Field.utf8(path)
        path = path[EVALUATED, :path] while path.match?(EVALUATED)
        return STANDARD if path.match?(INTERNAL)
        return OWN if path.start_with?(MEMSCOPE)

        tree, name = application&.tree(path)
        name || gem(tree ? "/#{path.delete_prefix(tree)}" : path) || standard(path) || application&.program(path) ||
          APPLICATION
      end

      # Of a shared object: the gem's name and version, STANDARD if it is Ruby's own, otherwise the file's name.
      def of_object(path) = path && (gem(path) || standard(path) || File.basename(path))

      # True if a shared object allocates on behalf of its callers.
      def runtime?(path) = !path.nil? && File.basename(path).match?(RUNTIME)

      # True if the library of a Ruby line is Rack, Puma, Rails, Sidekiq or memscope.
      def framework?(library) = library.to_s.match?(FRAMEWORK)

      # "nokogiri 1.15.4" for a path in an installed gem.
      def gem(path) = (path.match(CHECKOUT) || path.match(GEM))&.then { |found| "#{found[:name]} #{found[:version]}" }

      def standard(path) = (STANDARD if RUBYS.any? { |directory| path.start_with?(directory) })
      def called?(frame) = frame[:path].nil? || frame[:library] == STANDARD || frame[:library].match?(CALLED)
    end
  end
end

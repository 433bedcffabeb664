# frozen_string_literal: true

module Memscope
  class Profile < Reading
    # The directories of this process's application, and of the gems that its Gemfile takes from a directory. Installed
    # gems are known by their paths.
    #
    # Each directory is kept in two forms, as given and with symbolic links resolved, since Ruby reports a file's path
    # in either form. A link may have changed since a file was loaded, for example to a later release. So a file outside
    # of these directories can still be the application's.
    #
    # Safe in a trap handler.
    # @api private
    class Application
      ROOTS = {
        bundler: -> { ::Bundler.default_gemfile.dirname if defined?(::Bundler.default_gemfile) },
        rails: -> { ::Rails.root if defined?(::Rails.root) },
        directory: -> { Dir.pwd }
      }.freeze
      # Classes of a Gemfile's sources. Gems of a Git source are in a directory of Bundler's, or in vendor/cache.
      DEVELOPED = %w[Bundler::Source::Path Bundler::Source::Gemspec].freeze
      GIT = "Bundler::Source::Git"
      # Where an application keeps copies of gems, below its root.
      COPIES = %r{\A/vendor/(?:bundle|cache)/}
      # The directories of a gem's programs, and the suffix that Debian adds to the names of their scripts.
      PROGRAMS = %w[exe bin].freeze
      SUFFIX = RbConfig::CONFIG["ruby_install_name"].delete_prefix("ruby")

      class << self
        def current
          gems = defined?(::Gem) ? ::Gem.loaded_specs.values : []
          source, root = source_and_root
          new(root: root, source: source, gems: gems, scripts: scripts)
        end

        # @return [Array(Symbol, String), nil] a key of ROOTS, and the directory
        def source_and_root = ROOTS.lazy.map { |name, find| [name, directory(&find)] }.find(&:last)

        private

        # An error of Bundler or Rails must not make a profile fail: the next of ROOTS is tried.
        def directory
          path = yield&.to_s
          path if path && File.directory?(path)
        rescue StandardError
          nil
        end

        def scripts
          own = RbConfig::CONFIG["bindir"]
          defined?(::Gem) ? [own, ::Gem.bindir, *::Gem.path.map { |path| File.join(path, "bin") }] : [own]
        end
      end

      # `root` has no symbolic links. `source` is a key of ROOTS.
      attr_reader :root, :source

      # `scripts` are the directories where RubyGems installs scripts that start the programs of gems.
      def initialize(root: nil, source: nil, gems: [], scripts: [])
        @root = root && Field.utf8(Libraries.real(root))
        @source = source
        @gems = gems
        @scripts = scripts
        @roots = root ? forms(root) : []
        @trees = [*@roots.map { |directory| [directory, nil] }, *gems.flat_map { |gem| trees(gem) }]
                 .sort_by { |directory, _name| -directory.length }
      end

      # The innermost directory that contains this Ruby file, with a slash at the end, and the gem's name and version
      # (nil if the directory is the application's own).
      def tree(path) = @trees.find { |directory, _name| path.start_with?(directory) }

      # Name and version of the gem whose program this script starts.
      def program(path)
        directory, _slash, name = path.rpartition("/")
        return if !@scripts.include?(directory) || name.include?("\0")

        below = PROGRAMS.product([name, name.delete_suffix(SUFFIX)])
        gem = @gems.find { |one| below.any? { |names| File.file?(File.join(Field.utf8(one.full_gem_path), *names)) } }
        gem && title(gem)
      end

      private

      def trees(gem)
        source = gem.source.class.name if gem.respond_to?(:source)
        return [] unless source == GIT || DEVELOPED.include?(source)

        directories = forms(gem.full_gem_path)
        return [] if source == GIT && Libraries.gem(directories.last) # known by its path

        name = title(gem) if directories.none? { |directory| own?(directory) }
        directories.map { |directory| [directory, name] }
      end

      def own?(directory)
        @roots.any? { |root| directory.start_with?(root) && !"/#{directory.delete_prefix(root)}".match?(COPIES) }
      end

      def title(gem) = "#{gem.name} #{gem.version}"

      def forms(path) = [path, Libraries.real(path)].map { |form| Field.utf8("#{form.chomp('/')}/") }.uniq
    end
    # The first call of Gem::Specification#source makes RubyGems load a file, which a trap handler cannot do. So the
    # first call is made here. RubyGems must load the file itself: with RUBY_BOX=1, it would not see a constant that was
    # loaded from here.
    ::Gem::Specification.new.source if defined?(::Gem::Specification)
  end
end

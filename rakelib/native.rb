# frozen_string_literal: true

require "rubygems/package"
require "tmpdir"
require_relative "build"

# The binary gems: for each processor one gem, with an extension for each minor version of Ruby, in
# lib/memscope/3.3/memscope.so. The source gem stays beside them for everything else.
module NativeGems
  # The newest glibc whose symbols an extension may need, so that it loads on Red Hat Enterprise Linux 9, Amazon Linux
  # 2023, Ubuntu 22.04 and Debian 12. A linker takes the symbols of the glibc that it finds, so the machine that builds
  # must not have a much newer one.
  GLIBC = Gem::Version.new("2.34")
  # Rubies may have libruby linked statically, and a program that is started has its symbols in either case.
  NEEDED = /\A(?:lib[cm]\.so\.6|ld-linux-.*)\z/
  # Of the Rubies that a published gem has an extension for.
  MINORS = %w[3.1 3.2 3.3 3.4 4.0].freeze
  DIRECTORY = "tmp/native"

  # A Ruby to compile for. It need not run here: it may be in a chroot, or be built for another processor, whose
  # compiler its rbconfig.rb then names.
  class Target
    include Rake::DSL

    attr_reader :minor, :platform

    # @return [Array<Target>] those installed below these prefixes, one for each minor version and processor
    def self.below(prefixes)
      found = prefixes.flat_map { |prefix| Dir["#{prefix}/lib/{*/ruby/*,ruby/*/*}/rbconfig.rb"] }
      found.map { |path| new(path) }.uniq { |target| [target.platform, target.minor] }
    end

    def initialize(path)
      @path = File.realpath(path)
      @minor = "#{value('MAJOR')}.#{value('MINOR')}"
      @platform = "#{value('target_cpu')}-linux-gnu"
    end

    # @return [String] the path of its extension
    def build
      directory = File.join(DIRECTORY, platform, minor)
      configuration = configure("#{directory}.ruby")
      build_extension("ext/memscope/extconf.rb", directory, library,
                      ruby: [RbConfig.ruby, "--disable-gems", "-I#{File.expand_path(configuration)}"],
                      environment: { "RUBYOPT" => nil, "RUBYLIB" => nil }, make: VARIABLES)
      raise "#{directory} was not configured by #{@path}" unless configured?(directory)

      File.join(directory, library)
    end

    def library = "memscope/#{minor}/memscope.so"

    # No path of this machine, not libruby, no packed relocations (glibc 2.36) nor debugging information. A symbol that
    # another patch level of this Ruby lacks must fail when the extension is loaded: later, it would end the program.
    VARIABLES = ["ruby=#{RbConfig.ruby}", "LIBRUBYARG_SHARED=", "LIBPATH=",
                 "LOCAL_LIBS=-Wl,-z,now -Wl,-z,nopack-relative-relocs -Wl,--strip-debug"].freeze
    private_constant :VARIABLES

    private

    # Whether its Makefile is for this Ruby, and not for the one that ran extconf.rb.
    def configured?(directory) = File.readlines("#{directory}/Makefile").include?("ruby_version = #{minor}.0\n")

    def value(name)
      File.read(@path)[/^\s*CONFIG\["#{name}"\] = "(.+)"$/, 1] || raise("#{@path} has no #{name}")
    end

    # Writes a rbconfig.rb that any Ruby can load. Its library directory has nothing but libruby, which probes link
    # with: the one of a chroot has another C library, too.
    def configure(directory)
      libraries = File.expand_path("libraries", directory)
      mkdir_p libraries
      text = File.read(@path).sub(/^ *RUBY_VERSION\.start_with\?.*\n *raise .*\n/, "").gsub("__FILE__", @path.dump)
      File.write(File.join(directory, "rbconfig.rb"), "#{text}#{format(OWN, libraries: libraries.dump)}")
      directory
    end

    OWN = <<~'RUBY'
      require "fileutils"
      RbConfig.instance_eval do
        libdir = self::CONFIG["libdirname"] || "libdir"
        Dir["#{self::CONFIG[libdir]}/libruby*"].each { |path| FileUtils.ln_sf(path, %<libraries>s) }
        [self::CONFIG, self::MAKEFILE_CONFIG].each do |config|
          config[libdir] = %<libraries>s
          config["LDFLAGS"] += " -Wl,--allow-shlib-undefined"
          config["LIBPATHFLAG"] = " -L%%s" # as mkmf before Ruby 3.4 wants it
          config["RPATHFLAG"] = ""
        end
      end
    RUBY
    private_constant :OWN
  end

  class << self
    include Rake::DSL

    def prefixes = ENV.fetch("MEMSCOPE_NATIVE_RUBIES", RbConfig::CONFIG["prefix"]).split(":")

    # @param prefixes [Array<String>] of Rubies
    # @param without [Array<String>] minor versions between them that may lack an extension
    # @return [Array<String>] the paths of the gems
    def build(prefixes, into: "pkg", without: ENV.fetch("MEMSCOPE_NATIVE_WITHOUT", "").split(","))
      targets = Target.below(prefixes)
      raise "no rbconfig.rb of a Ruby below #{prefixes.join(', ')}" if targets.empty?

      platforms = targets.group_by(&:platform)
      platforms.each { |platform, rubies| check_gaps(platform, gaps(rubies.map(&:minor)), without) }
      platforms.map do |platform, rubies|
        package(specification(platform, rubies.map(&:minor)), compile(rubies), into)
      end
    end

    # @return [Array<String>] minor versions that RubyGems installs a gem with these for, and that are not among them
    def gaps(minors)
      oldest, newest = minors.map { |minor| Gem::Version.new(minor) }.minmax
      MINORS.select { |minor| Gem::Version.new(minor).between?(oldest, newest) } - minors
    end

    # @return [Array<String>] why it would not load wherever the gem is installed
    def flaws(library)
      text = IO.popen(["readelf", "--wide", "--dynamic", "--version-info", "--relocs", library], &:read)
      versions = text.scan(/Name: (GLIBC_\S+)/).flatten.uniq
      newer = versions.reject { |name| name.match?(/\AGLIBC_[\d.]+\z/) && Gem::Version.new(name[6..]) <= GLIBC }
      others = text.scan(/\(NEEDED\).*\[(.+)\]/).flatten.grep_v(NEEDED)
      tags = text.scan(/\((RPATH|RUNPATH|RELR)\)/).flatten
      [*("names no version of glibc" if versions.empty?), *(newer + others).map { |name| "needs #{name}" },
       *tags.map { |tag| "has #{tag}" },
       *("binds lazily" unless text.match?(/\bBIND_NOW\b|\bNOW\b/)),
       # TLS descriptors, which glibc before 2.40 handles wrongly on this processor (extconf.rb).
       *("has TLS descriptors" if text.include?("R_X86_64_TLSDESC"))]
    end

    def specification(platform, minors)
      oldest, newest = minors.minmax_by { |minor| Gem::Version.new(minor) }
      Gem::Specification.load("memscope.gemspec").dup.tap do |spec|
        # As an Array: RubyGems before 3.3.22 drops "gnu" from a String. It also takes such gems for musl.
        spec.platform = Gem::Platform.new(platform.split("-"))
        spec.required_rubygems_version = ">= 3.3.22"
        spec.required_ruby_version = [">= #{oldest}", "< #{Gem::Version.new("#{newest}.0").bump}.dev"]
        spec.extensions = []
        spec.files = spec.files.grep_v(%r{\Aext/}) + minors.map { |minor| "lib/memscope/#{minor}/memscope.so" }
      end
    end

    private

    # @return [Hash{String => String}] the extensions, by their places in the gem
    def compile(rubies)
      libraries = rubies.to_h { |target| ["lib/#{target.library}", target.build] }
      found = libraries.values.flat_map { |path| flaws(path).map { |flaw| "#{path} #{flaw}" } }
      raise found.join("\n") if found.any?

      libraries
    end

    def check_gaps(platform, gaps, without)
      return if gaps.empty?

      lacking = "the gem for #{platform} has no extension for Ruby #{gaps.join(', ')}"
      allow = "MEMSCOPE_NATIVE_WITHOUT=#{gaps.join(',')}"
      raise "#{lacking}: add it to MEMSCOPE_NATIVE_RUBIES, or allow it by #{allow}" if (gaps - without).any?

      puts "#{lacking}, which installs it, and is then told to install the source gem: do not publish it"
    end

    # Packs a copy of the tree, with the libraries in their places.
    def package(spec, libraries, into)
      gem = File.expand_path(spec.file_name, into)
      mkdir_p into
      Dir.mktmpdir do |tree|
        spec.files.each do |file|
          mkdir_p File.dirname("#{tree}/#{file}")
          cp libraries.fetch(file, file), "#{tree}/#{file}", preserve: true
        end
        Dir.chdir(tree) { Gem::Package.build(spec, false, false, gem) }
      end
      gem
    end
  end
end

# frozen_string_literal: true

require "fileutils"
require "json"
require "rbconfig"
require "shellwords"
require "yaml"

module Memscope
  # A commit, in a worktree of its own, and measurements of the application there, each in a new process.
  class Commit
    # A command failed, or there is nothing to measure, for the reason in the message.
    class Failed < StandardError; end

    # A line is the same in two commits if its file and its text are, whatever its number.
    Line = Struct.new(:path, :text)
    # Of one path: bytes that each line retains after the first requests, the check of all, and objects that each line
    # allocates in each round of `round` requests. `failed` is the only field of a path that cannot be requested.
    Requests = Struct.new(:failed, :allocator, :round, :retained, :check, :rounds, keyword_init: true)

    RUBY = [RbConfig.ruby, "-I#{File.expand_path('../lib', __dir__)}"].freeze
    MEMSCOPE = [*RUBY, File.expand_path("../exe/memscope", __dir__)].freeze
    LOAD = 'require "rack"; Rack::Builder.parse_file(ARGV.first)'
    private_constant :RUBY, :MEMSCOPE, :LOAD

    # @return [String] the abbreviated hash
    attr_reader :name

    # @param reference [String] fetched from origin if it is not there
    # @param root [String] path of the worktree. Both commits' need the same length: Ruby keeps paths in memory
    # @param options [Hash{Symbol => Object}] app, boot, prepare, allocator, requests
    def initialize(reference, root, options)
      @root = root
      @options = options
      @places = {}
      @texts = {}
      @checkout = git("rev-parse", "--show-toplevel")
      @name = git("rev-parse", "--short", found(reference))
      git("worktree", "add", "--quiet", "--force", "--detach", root, @name)
      run("sh", "-c", options[:prepare], as: options[:prepare]) if options[:prepare]
    end

    # @return [Requires] the cost of loading the application
    def boot
      command = @options[:boot]&.shellsplit || [*bundle, RbConfig.ruby, "-e", LOAD, rackup]
      Requires.from_json(written do |file|
        run(*MEMSCOPE, "requires", "--json", "--output=#{file}", "--", *command, as: @options[:boot] || rackup)
      end)
    rescue Failed
      why = measured[:failed] unless @options[:boot]
      why ? raise(Failed, "#{@name}: #{relative(why)}") : raise
    end

    # @return [Hash{Line => Integer}] bytes of each file in a boot
    def boot_files(boot) = sums(boot.nodes) { |node| [line(node.path, nil), node.bytes] }

    # @return [Hash{Line => Integer}] bytes that each line retains when the application is loaded
    def boot_lines
      measured.then { |body| body[:failed] ? {} : retained(body[:boot]) }
    end

    # @return [Requests] to one path
    def requests(path)
      body = measured(path, @options[:requests].to_s)
      return Requests.new(failed: relative(body[:failed])) if body[:failed]

      rounds = body[:rounds].map { |rows| sums(rows) { |row| [line_of(row), row[:allocated_objects]] } }
      Requests.new(**body, retained: retained(body[:retained]), check: Check.from_h(body[:check]), rounds: rounds)
    end

    # @return [Line] of this commit
    def line(path, lineno)
      path = relative(path || "[no Ruby line]")
      line = Line.new(path, lineno && (texts(path)[lineno - 1] || lineno))
      @places[line] ||= [path.sub(%r{\A/.*/gems/}, ""), lineno].compact.join(":")
      line
    end

    # @return [String] "app/models/order.rb:41", "rack-3.2.8/lib/rack/utils.rb:9", in this commit
    def place(line) = @places.fetch(line)

    # @return [String] without the path of the worktree
    def relative(text) = text.gsub("#{@root}/", "")

    private

    def line_of(row) = line(*row.values_at(:path, :lineno))

    def retained(rows) = sums(rows) { |row| [line_of(row), row[:retained_bytes]] }

    def sums(rows)
      rows.each_with_object(Hash.new(0)) do |row, sums|
        line, number = yield row
        sums[line] += number
      end
    end

    def texts(path)
      @texts[path] ||= File.file?(file = File.expand_path(path, @root)) ? File.binread(file).lines.map(&:strip) : []
    end

    # A depth would cut the history of a clone that has all of it.
    def found(reference)
      raise Failed, "#{reference} is no name of a commit" if reference.start_with?("-")

      local(reference) || local("origin/#{reference}") || begin
        depth = ["--depth=1"] if git("rev-parse", "--is-shallow-repository") == "true"
        git("fetch", "--quiet", "--no-tags", *depth, "origin", reference)
        git("rev-parse", "FETCH_HEAD")
      end
    end

    # @return [String, nil] the hash of a commit that need not be fetched
    def local(reference)
      git("rev-parse", "--quiet", "--verify", "#{reference}^{commit}")
    rescue Failed
      nil
    end

    def git(*arguments)
      answer = IO.popen(["git", *arguments], &:read).chomp
      Process.last_status.success? ? answer : raise(Failed, "failed: git #{arguments.join(' ')}")
    end

    def directory = File.dirname(File.join(@root, @options[:app]))

    def rackup = File.basename(@options[:app])

    def bundle = File.file?(File.join(directory, "Gemfile")) ? [RbConfig.ruby, "-S", "bundle", "exec"] : []

    def measured(path = nil, *arguments)
      measure = [*bundle, *RUBY, File.join(__dir__, "measure.rb")]
      report = written { |file| run(*measure, file, rackup, *path, *arguments, as: path || rackup) }
      JSON.parse(report, symbolize_names: true)
    end

    # What the block writes into a file.
    def written
      FileUtils.rm_f(file = "#{@root}.json")
      yield file
      File.read(file)
    rescue Errno::ENOENT
      raise Failed, "#{@name}: no report, so it was killed, or left by exit!"
    end

    # Standard output is for the comparison.
    #
    # @param as [String] its name in a message; the error itself is in the log
    def run(*command, as:)
      served = [*MEMSCOPE, "exec", "--allocator=#{@options[:allocator]}", "--"] if @options[:allocator]
      done = system(environment, *served, *command, chdir: directory, out: :err)
      raise Failed, "#{@name}: failed: #{as} (see the log)" unless done
    end

    # Of production, like a server's, with the bundle of the checkout. As in Bundler, BUNDLE_PATH starts at the Gemfile.
    def environment
      mode = ENV["RAILS_ENV"] || ENV.fetch("RACK_ENV", "production")
      application = File.dirname(File.join(@checkout, @options[:app]))
      settings = File.join(application, ".bundle/config")
      given = ENV.slice("BUNDLE_PATH", "BUNDLE_GEMFILE")
      given.update(YAML.safe_load_file(settings) || {}) if File.file?(settings)
      gemfile = File.expand_path(given["BUNDLE_GEMFILE"] || File.join(application, "Gemfile"), @checkout)
      given["BUNDLE_PATH"] &&= File.expand_path(given["BUNDLE_PATH"], File.dirname(gemfile))
      given["BUNDLE_GEMFILE"] &&= gemfile.sub(@checkout, @root)
      { "RAILS_ENV" => mode, "RACK_ENV" => mode, **given }
    end
  end
end

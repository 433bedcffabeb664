# frozen_string_literal: true

ENGINE = FileList["ext/memscope/engine/**/*.{c,h,def}"]
C_SOURCES = FileList["ext/memscope/**/*.{c,h}", "test/**/*.{c,h}"]
WARNINGS = %w[-std=c11 -D_GNU_SOURCE -Iext/memscope/engine
              -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Werror].freeze
ARM64_COMPILER = "aarch64-linux-gnu-gcc" # Debian's package gcc-aarch64-linux-gnu

desc "Run every static check"
task lint: %w[lint:ruby lint:format lint:tidy lint:cppcheck lint:types lint:docs lint:engine lint:rooms]

namespace :lint do
  # With SINCE=HEAD~50, only of files that have changed since then, which takes seconds instead of minutes.
  task :ruby do
    changed = changed_files(/\A(?:\.rubocop\.yml|Gemfile)\z/)
    files = changed ? `rubocop --list-target-files`.lines(chomp: true) & changed : []
    sh "rubocop", "--format", "simple", *files unless changed && files.empty?
  end

  task(:format) { sh "clang-format", "--dry-run", "-Werror", *C_SOURCES }

  # One process per processor, since clang-tidy is single-threaded. NODES=20000 lowers the limit on the states that its
  # analyzer explores per function (225,000 by default): clang-tidy then takes a fifth of the time. With SINCE=HEAD~50,
  # only of sources that have changed since then, or include what has.
  task tidy: "compile:strict" do
    bounds = ENV.key?("NODES") ? ["-Xclang", "-analyzer-config", "-Xclang", "max-nodes=#{Integer(ENV['NODES'])}"] : []
    directories = [RbConfig::CONFIG["rubyhdrdir"], RbConfig::CONFIG["rubyarchhdrdir"]]
    includes = ["ext/memscope", "ext/memscope/engine", "tmp/strict"].map { |directory| "-I#{directory}" } +
               directories.map { |directory| "-isystem#{directory}" }
    sources = FileList["ext/memscope/**/*.c", "test/support/ext/**/*.c"]
    changed = changed_files(/\A\.clang-tidy\z/)
    sources = sources.select { |source| with_included(source).intersect?(changed) } if changed
    on_each_processor(sources.each_slice(10)) do |part|
      sh "clang-tidy", "--quiet", *part, "--", *bounds, "-std=c11", "-D_GNU_SOURCE", *includes
    end
  end

  task :cppcheck do
    next warn("cppcheck is not installed: not run") unless system("cppcheck", "--version", out: File::NULL)

    # ctuuninitvar mistakes passing an out-parameter for a use of an uninitialized variable.
    cppcheck = %W[cppcheck --quiet --std=c11 --enable=warning,performance,portability --error-exitcode=2 --inline-suppr
                  --suppress=ctuuninitvar -Iext/memscope/engine -I#{RecordStructs.write}]
    sh(*cppcheck, "ext/memscope/engine")
    # It cannot parse the bindings without the macros of their headers, which have too many configurations for all.
    sh(*cppcheck, "-Iext/memscope", "--max-configs=2", "--suppress=toomanyconfigs", "-iext/memscope/engine",
       "ext/memscope")
  end

  task(:types) { sh "rbs", "-I", "sig", "validate" }

  task :docs do
    statistics = `yard stats --list-undoc`
    abort statistics unless statistics.include?("100.00% documented")
  end

  desc "The engine knows no Ruby, and compiles for musl, and for arm64 if its compiler is installed"
  task :engine do
    leaks = ENGINE.flat_map do |path|
      File.foreach(path).with_index(1).filter_map do |line, number|
        # engine/attach/ looks up Ruby's symbols in another process, by names in strings.
        "#{path}:#{number}: #{line}" if line.gsub(/"rb_\w+"/, "").match?(/ruby\.h|\bVALUE\b|\brb_[a-z]/)
      end
    end
    abort "the engine names Ruby:\n#{leaks.join}" unless leaks.empty?

    sources = ENGINE.select { |path| path.end_with?(".c") }
    structs = "-I#{RecordStructs.write}"
    sh "musl-gcc", *WARNINGS, structs, "-fsyntax-only", *sources
    unless system(ARM64_COMPILER, "--version", out: File::NULL)
      next warn("#{ARM64_COMPILER} is not installed: not compiled for arm64")
    end

    sh ARM64_COMPILER, *WARNINGS, "-Wno-unused-parameter", structs, "-fsyntax-only", *sources
  end
end

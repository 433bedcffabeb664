# frozen_string_literal: true

# The extension as compilers, sanitizers, valgrind and fuzzers check it.

desc "Compile and install the extension with every warning an error"
task "compile:strict" do
  build_extension "ext/memscope/extconf.rb", "tmp/strict", LIBRARY,
                  make: ["CC=#{RbConfig::CONFIG['CC']} -Werror"]
  install "tmp/strict/#{LIBRARY}", "lib/#{LIBRARY}", mode: 0o755 # in a new file: a process may have mapped the old one
end

# The extension built so that its protections can be switched off (engine/base/protections.h), for tests that show what
# each protection prevents. Only the sources that use protections are compiled again.
task "compile:unprotected" => "compile:strict" do
  building("tmp/unprotected") do
    next if uptodate?("tmp/unprotected/#{LIBRARY}", ["tmp/strict/#{LIBRARY}"])

    rm_rf "tmp/unprotected"
    cp_r "tmp/strict", "tmp/unprotected", preserve: true
    protected = FileList["ext/memscope/**/*.c"].select { |source| File.read(source).include?("protections.h") }
    rm(protected.map { |source| "tmp/unprotected/#{File.basename(source, '.c')}.o" })
    sh "make", "-j#{Etc.nprocessors}", "CC=#{RbConfig::CONFIG['CC']} -DMEMSCOPE_UNPROTECTED",
       chdir: "tmp/unprotected", out: [File.expand_path("tmp/unprotected/build.log"), "a"]
    mv "tmp/unprotected/#{File.basename(LIBRARY)}", "tmp/unprotected/#{LIBRARY}"
  end
end

desc "Run the suite's core under AddressSanitizer and UBSan"
task "test:asan" => "compile:test" do
  # Ruby raises with __builtin_longjmp, which leaves the redzones of the frames that it skips poisoned: stacks are not
  # checked here (asan-stack=0), but by the fuzzers and the engine's C tests.
  build_extension "ext/memscope/extconf.rb", "tmp/asan", LIBRARY,
                  environment: { "MEMSCOPE_SANITIZE" => "1" },
                  make: ["CC=#{RbConfig::CONFIG['CC']} --param=asan-stack=0"]
  library = `gcc -print-file-name=libasan.so`.chomp
  run_test_files Suites::SANITIZED, "LD_PRELOAD" => library, "MEMSCOPE_SANITIZER" => library,
                                    "MEMSCOPE_EXTENSION_DIR" => File.expand_path("tmp/asan"), "MEMSCOPE_BRIEF" => "1",
                                    "ASAN_OPTIONS" => "detect_leaks=0:use_sigaltstack=0",
                                    "UBSAN_OPTIONS" => "halt_on_error=1"
end

desc "Run the unit tests under valgrind (in-process readings only), and a malloc profile with each backend"
task "test:valgrind" => %w[compile compile:test] do
  require "ruby_memcheck"
  RubyMemcheck.config(binary_name: "memscope")
  RubyMemcheck::TestTask.new("memcheck") do |test|
    test.libs = %w[lib test]
    test.test_files = FileList["test/{,{action,bindings,heap,judge,process,profile,remote,show,value}/}*_test.rb",
                               "test/{judge/{doctor,doctor/rules,lint,policy,verdict},show/report}/*_test.rb",
                               "test/{action/purge/result,remote/workers/{reporter,watch}}_test.rb",
                               "test/{show/metrics/definitions,value/{configuration/settings,native/absent}}_test.rb"]
                      .exclude(*Suites::LONG)
  end
  Rake::Task["memcheck"].invoke
  run_tests ["test/acceptance/malloc_profile_valgrind_test.rb"], "SECONDS" => "60"
end

# Yields each item, on as many threads as there are processors.
def on_each_processor(items)
  waiting = Queue.new(items).close
  Array.new(Etc.nprocessors) do
    Thread.new do
      while (item = waiting.pop)
        yield item
      end
    end
  end.each(&:join)
end

desc "Fuzz each parser of the engine with libFuzzer: SECONDS=60 each"
task :fuzz do
  engine = File.expand_path("ext/memscope/engine")
  compiler = ["clang", "-g", "-O1", "-std=c11", "-D_GNU_SOURCE", "-fsanitize=fuzzer,address,undefined", "-I#{engine}",
              "-I#{RecordStructs.write}"]
  building("tmp/fuzz/engine") do
    rm_rf "tmp/fuzz/engine"
    mkdir_p "tmp/fuzz/engine"
    on_each_processor(Dir["#{engine}/**/*.c"].each_slice(10)) do |sources|
      sh(*compiler, "-c", *sources, chdir: "tmp/fuzz/engine")
    end
    on_each_processor(FileList["test/fuzz/*_fuzz.c"]) do |source|
      program = "tmp/fuzz/#{File.basename(source, '.c')}"
      corpus = "#{program}.corpus"
      seeds = FileList["test/fuzz/seeds/#{File.basename(source, '_fuzz.c')}"].existing
      mkdir_p corpus
      sh(*compiler, source, *Dir["tmp/fuzz/engine/*.o"], "-lm", "-o", program)
      sh program, "-max_total_time=#{ENV.fetch('SECONDS', '60')}", "-artifact_prefix=#{program}.", corpus, *seeds
    end
  end
end

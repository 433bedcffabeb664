# frozen_string_literal: true

# Installs gems into a directory, for the Ruby of a prefix or for this one, and returns its absolute path. Gems that are
# installed already are found only without the bundle's settings.
def install_gems(directory, *gems, ruby: nil)
  path = File.expand_path(directory)
  Bundler.with_unbundled_env do
    sh({ "GEM_HOME" => path, "GEM_PATH" => path }, ruby ? "#{ruby}/bin/gem" : "gem", "install", "--silent",
       "--no-document", "--conservative", *gems)
  end
  path
end

# Builds the extension for each Ruby of MEMSCOPE_MATRIX_RUBIES, into tmp/NAME, and returns their prefixes.
def built_for_other_rubies
  Bundler.with_unbundled_env do
    ENV.fetch("MEMSCOPE_MATRIX_RUBIES", "").split(":").each do |prefix|
      build_extension "ext/memscope/extconf.rb", "tmp/#{File.basename(prefix)}", LIBRARY, ruby: "#{prefix}/bin/ruby"
    end
  end
end

# All of the files' tests, with an environment that makes them long.
def run_battery(files, environment) = run_tests(files, { "MEMSCOPE_IN_FULL" => "1", **environment })

# The Rubies of the binary gems that run here.
def running_rubies
  NativeGems.prefixes.map { |prefix| "#{prefix}/bin/ruby" }
            .select { |path| system(path, "--version", out: File::NULL, err: File::NULL) }
end

# The long forms of tests, which measure, repeat, or install what they compare with.
namespace :battery do
  desc "Ask for GRAPHS=1000 heap graphs in a row, and find the holders of all leaks under both allocators"
  task heap: ["compile", "compile:test"] do
    files = FileList["test/heap/heap_graph_test.rb", "test/acceptance/heap_{graph,hostile}_test.rb",
                     "test/ruby/*/*references_test.rb"]
    run_battery files, "GRAPHS" => ENV.fetch("GRAPHS", "1000"), "ALLOCATORS" => "glibc jemalloc"
  end

  desc "Measure what each gem of a Rails application costs, five times, beside derailed_benchmarks"
  task requires: ["compile", "compile:test"] do
    run_battery ["test/acceptance/requires_rails_test.rb"], "MEMSCOPE_REQUIRES_BATTERY" => "1"
  end

  desc "Compare a commit with itself by the action for GitHub, RUNS=200 times: nothing may have grown"
  task action: :compile do
    run_battery ["test/acceptance/action_test.rb"], "MEMSCOPE_ACTION_RUNS" => ENV.fetch("RUNS", "200")
  end

  desc "Find the lines and the holders of all leaks of objects, by `memscope leaks --objects`"
  task object_leaks: ["compile", "compile:test"] do
    run_battery ["test/acceptance/object_leaks_test.rb"], "MEMSCOPE_ALL_LEAKS" => "1"
  end

  desc "Check that blocks which leave nothing behind never fail in ROUNDS=1000 rounds under each allocator, and that " \
       "all leaks are found; with RSpec, SimpleCov and SQLite, which it installs into GEMS=tmp/assertion_gems"
  task assertions: ["compile", "compile:test"] do
    sqlite3 = RUBY_VERSION < "3.2" ? "sqlite3:1.7.3" : "sqlite3" # the last version with a binary for Ruby 3.1
    gems = ["rspec", "simplecov", "activerecord:7.2.4", sqlite3]
    directory = install_gems(ENV.fetch("GEMS", "tmp/assertion_gems"), *gems)
    run_battery FileList["test/check/*_test.rb",
                         "test/acceptance/assertions_test.rb"],
                "MEMSCOPE_GROWTH_ROUNDS" => ENV.fetch("ROUNDS", "1000"), "MEMSCOPE_ASSERTION_GEMS" => directory
  end

  desc "Let DEATHS=1000 processes die, each with a black box, a tenth at a memory limit; disks fail; LEAKS=35 leaks " \
       "end at a limit; and RUNS=500 processes stay near one with a box, and as many without; as root"
  task deaths: ["compile", "compile:test"] do
    numbers = { "DEATHS" => "1000", "LEAKS" => "35", "RUNS" => "500" }
    numbers = numbers.to_h { |name, number| [name, ENV.fetch(name, number)] }
    run_battery FileList["test/acceptance/{deaths,failing_disks,limits}_test.rb"], numbers
  end

  desc "Compare profiles of objects with the truth in SEEDS=200 processes: how often they are within their errors"
  task object_truth: ["compile", "compile:test"] do
    run_battery ["test/acceptance/object_truth_test.rb"], "MEMSCOPE_SEEDS" => ENV.fetch("SEEDS", "200")
  end

  desc "Let one of five endpoints keep objects under 16 threads, SEEDS=60 times: whether it is found, within its error"
  task tags: ["compile", "compile:test"] do
    run_battery ["test/acceptance/tags_truth_test.rb"],
                "MEMSCOPE_SEEDS" => ENV.fetch("SEEDS", "60"), "REQUESTS" => ENV.fetch("REQUESTS", "12000")
  end

  desc "Check that forked children of HEAPS=512,2048 MiB still share after they were read, on an idle machine"
  task fork: ["compile", "compile:test"] do
    run_battery ["test/acceptance/copy_on_write_test.rb"], "MEMSCOPE_HEAPS" => ENV.fetch("HEAPS", "512,2048")
  end

  desc "Let the policy restart RESTARTS=20 workers of Puma 5, 6, 7 and 8 under load; installs them into GEMS=tmp/pumas"
  task policy_puma: ["compile", "compile:test"] do
    pumas = %w[5.6.9 6.6.1 7.2.1 8.0.2].map { |version| "puma:#{version}" }
    directory = install_gems(ENV.fetch("GEMS", "tmp/pumas"), *pumas)
    run_battery ["test/acceptance/policy_puma_test.rb"], "MEMSCOPE_PUMA_GEMS" => directory,
                                                         "MEMSCOPE_POLICY_RESTARTS" => ENV.fetch("RESTARTS", "20")
  end

  desc "Let the policy restart Sidekiq RESTARTS=10 times while it works, and count its jobs"
  task policy_sidekiq: ["compile", "compile:test"] do
    run_battery ["test/acceptance/policy_sidekiq_test.rb"], "MEMSCOPE_POLICY_RESTARTS" => ENV.fetch("RESTARTS", "10")
  end

  desc "Look at the tab of Sidekiq::Web in a browser: with the bundle's Sidekiq and, for the first Ruby of " \
       "MEMSCOPE_MATRIX_RUBIES, with Sidekiq 8, which it installs into GEMS=tmp/sidekiq_gems. Saves PICTURES"
  task sidekiq_web: ["compile", "compile:test"] do
    ruby = built_for_other_rubies.first
    directory = ENV.fetch("GEMS", "tmp/sidekiq_gems")
    gems = (install_gems(directory, "sidekiq:8.1.7", "puma", "rack-session", ruby: ruby) if ruby)
    run_battery ["test/acceptance/sidekiq_web_test.rb"], "MEMSCOPE_SIDEKIQ_RUBY" => ruby,
                                                         "MEMSCOPE_SIDEKIQ_GEMS" => gems,
                                                         "MEMSCOPE_PICTURES" => ENV.fetch("PICTURES", nil)
  end

  desc "Type `mem` in the console of an application that Rails 8 generates, with the first Ruby of " \
       "MEMSCOPE_MATRIX_RUBIES, 3.2 or newer; installs Rails into GEMS=tmp/rails_gems"
  task console: :compile do
    ruby = built_for_other_rubies.first or abort "MEMSCOPE_MATRIX_RUBIES names no Ruby"
    gems = install_gems(ENV.fetch("GEMS", "tmp/rails_gems"), "rails:8.1.1", "puma", "irb", ruby: ruby)
    run_battery ["test/cli/console_test.rb"], "MEMSCOPE_CONSOLE_RUBY" => ruby, "MEMSCOPE_CONSOLE_GEMS" => gems
  end

  desc "Check that transactions in SQLite and PostgreSQL, Unicorn's master and gRPC go on beside forked children; " \
       "installs gems into GEMS=tmp/host_gems"
  task hosts: ["compile", "compile:test"] do
    # Later versions of grpc have no binary for Ruby 3.1, and take many minutes to compile.
    gems = ["sqlite3", "pg", "rack", "unicorn", RUBY_VERSION < "3.2" ? "grpc:1.71.0" : "grpc"]
    directory = install_gems(ENV.fetch("GEMS", "tmp/host_gems"), *gems)
    run_battery ["test/acceptance/hosts_test.rb"], "MEMSCOPE_HOST_GEMS" => directory
  end

  desc "Follow the recipes of docs/apm.md with the clients of APMs, which it installs into GEMS=tmp/apm_gems"
  task apm: :compile do
    gems = %w[activesupport:7.2.4 appsignal dogstatsd-ruby honeybadger newrelic_rpm scout_apm sentry-ruby]
    directory = install_gems(ENV.fetch("GEMS", "tmp/apm_gems"), *gems)
    run_battery ["test/acceptance/apm_test.rb"], "MEMSCOPE_APM_GEMS" => directory
  end

  desc "Check that heapy, heap-profiler, sheap, memlab, VS Code's parser and chrome-devtools-mcp read dumps; " \
       "installs them into TOOLS=tmp/dump_tools"
  task dumps: :compile do
    tools = File.expand_path(ENV.fetch("TOOLS", "tmp/dump_tools"))
    install_gems("#{tools}/gems", "heapy", "heap-profiler", "sheap")
    # memlab depends on a browser that only its other parts need.
    sh({ "PUPPETEER_SKIP_DOWNLOAD" => "1" }, "npm", "install", "--silent", "--prefix", tools, "@vscode/v8-heap-parser",
       "@memlab/heap-analysis", "chrome-devtools-mcp@1.11.0", "node@22")
    run_battery ["test/acceptance/dump_test.rb"], "MEMSCOPE_DUMP_TOOLS" => tools
  end

  desc "Check that no process whose Ractors allocate beside profiles and measurements dies or hangs, RUNS=50 times " \
       "each, for SECONDS=4; and show how the same Ractors fare without memscope. With this Ruby, and with those of " \
       "MEMSCOPE_MATRIX_RUBIES"
  task ractors: ["compile", "compile:test"] do
    run_battery ["test/acceptance/ractors_test.rb"], "RUNS" => ENV.fetch("RUNS", "50"),
                                                     "MEMSCOPE_RACTOR_SECONDS" => ENV.fetch("SECONDS", "4"),
                                                     "MEMSCOPE_RACTOR_RUBIES" => built_for_other_rubies.join(":")
  end

  desc "Copy processes that have not loaded memscope, and make them evaluate texts, in all states, VISITS=5 times " \
       "each: with this Ruby, with those of MEMSCOPE_MATRIX_RUBIES, and under both allocators"
  task attach_states: ["compile", "compile:test"] do
    run_battery FileList["test/engine/attach/{private_copy,postponed_text}_test.rb"],
                "VISITS" => ENV.fetch("VISITS", "5"), "ALLOCATORS" => "glibc jemalloc",
                "MEMSCOPE_TRACED_RUBIES" => built_for_other_rubies.join(":")
  end

  desc "Take COPIES=6000 copies of processes full of threads, children and signals, have them evaluate TEXTS=3000 " \
       "texts and begin LISTENERS=60 listeners, kill KILLS=1000 tracers, measure PAUSES=300 pauses, and attach " \
       "SERVED=400 times each way to Puma and Sidekiq under load. With this Ruby, and those of MEMSCOPE_MATRIX_RUBIES"
  task attach: ["compile", "compile:test"] do
    numbers = { "COPIES" => "6000", "TEXTS" => "3000", "LISTENERS" => "60", "KILLS" => "1000", "PAUSES" => "300",
                "SERVED" => "400" }
    run_battery FileList["test/engine/attach/trace*_test.rb", "test/acceptance/attach_{storms,pause,servers}_test.rb"],
                "MEMSCOPE_TRACED_RUBIES" => built_for_other_rubies.join(":"), "ALLOCATORS" => "glibc jemalloc",
                **numbers.to_h { |name, number| ["MEMSCOPE_#{name}", ENV.fetch(name, number)] }
  end

  desc "Build the gems, and install them without a compiler: with each Ruby of MEMSCOPE_NATIVE_RUBIES that runs " \
       "here, and, as root, in row d of bin/matrix. Prints their sizes, and how long it takes"
  task gems: ["native", "compile", "compile:test"] do
    run_battery ["test/acceptance/gems_test.rb"], "MEMSCOPE_GEMS" => File.expand_path("pkg"),
                                                  "MEMSCOPE_GEM_RUBIES" => running_rubies.join(":")
    sh "bin/matrix", "d"
  end

  desc "Check that profiles keep none of METHODS=100000 methods, anonymous classes and objects alive"
  task methods: ["compile", "compile:test"] do
    run_battery ["test/acceptance/kept_alive_test.rb"], "METHODS" => ENV.fetch("METHODS", "100000")
  end

  desc "Judge SEEDS=200 traces of memory with known truth by each generator, at every epoch of HOURS=168, and living " \
       "processes under both allocators"
  task verdict: ["compile", "compile:test"] do
    run_battery ["test/engine/trend/verdict_battery_test.rb", "test/acceptance/verdict_test.rb"],
                "MEMSCOPE_SEEDS" => ENV.fetch("SEEDS", "200"), "MEMSCOPE_HOURS" => ENV.fetch("HOURS", "168"),
                "ALLOCATORS" => "glibc jemalloc"
  end

  desc "Let a policy and other rules restart simulated workers: SEEDS=1-3,1001-1008 of each kind, STEPS=100000 of 5 s"
  task policy: :compile do
    run_battery ["test/judge/policy/battery_test.rb"],
                "MEMSCOPE_SEEDS" => ENV.fetch("SEEDS", "1-3,1001-1008"),
                "MEMSCOPE_STEPS" => ENV.fetch("STEPS", "100000")
  end

  desc "Check what the doctor says of three faults in a Puma cluster that has run for MINUTES=3"
  task faults: ["compile", "compile:test"] do
    run_battery ["test/acceptance/faults_test.rb"], "MEMSCOPE_FAULT_MINUTES" => ENV.fetch("MINUTES", "3")
  end

  desc "Ask everything of Puma clusters under load, with both profiles, for MINUTES=30"
  task endurance: ["compile", "compile:test"] do
    seconds = 60 * Float(ENV.fetch("MINUTES", "30"))
    run_battery ["test/acceptance/endurance_test.rb"], "MEMSCOPE_ENDURANCE_SECONDS" => seconds.to_s
  end
end

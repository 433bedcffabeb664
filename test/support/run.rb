# frozen_string_literal: true

# run.rb [FILE...|SUITE] [OPTION...]: runs these test files, or a list in Suites: TEST if none is named. The options are
# Minitest's, such as -n /name/.

require_relative "suites"
require_relative "test_run"

$stdout.sync = true
options = ARGV.drop_while { |argument| !argument.start_with?("-") }
files = ARGV.take(ARGV.size - options.size)
options += ["--seed", rand(0xFFFF).to_s] unless options.include?("--seed")
files = ["TEST"] if files.empty?
files = files.flat_map { |name| name.match?(/\A[A-Z_]+\z/) ? Suites.const_get(name) : name }
exit TestRun.new(files, options).run

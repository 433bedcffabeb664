# frozen_string_literal: true

# run.rb [FILE...] [OPTION...]: runs these test files, or Suites::TEST. The options are Minitest's, such as -n /name/.

require_relative "suites"
require_relative "test_run"

$stdout.sync = true
options = ARGV.drop_while { |argument| !argument.start_with?("-") }
files = ARGV.take(ARGV.size - options.size)
options += ["--seed", rand(0xFFFF).to_s] unless options.include?("--seed")
exit TestRun.new(files.empty? ? Suites::TEST : files, options).run

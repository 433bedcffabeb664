# frozen_string_literal: true

require "json"
require "memscope"
require "memscope/remote/copy"
require_relative "child_process"

# Copies of processes that have not loaded memscope (Host.in_copy), and the values that they answer with.
module Copies
  EXTENSION = File.join(ChildProcess::EXTENSION_DIRECTORY, "memscope/memscope.so")
  NATIVE = "Memscope.const_get(:Native)"

  # answers: decoded values, or the messages of exceptions. rss: of the process, in bytes. status: of the copy, as
  # Host.in_copy returns it. err: what the script printed to its standard error.
  Answered = Struct.new(:answers, :rss, :status, :err, keyword_init: true)

  class << self
    # Runs a script, whose process then asks a copy of itself.
    #
    # @param expressions [Array<String>]
    # @param file [String, nil] the path of a file that the copy may write to, by its descriptor 101
    # @param after [String] a script for the process, once its copy has ended
    # @return [Answered]
    def ask(script, expressions, file: nil, after: "", preload: nil)
      result = ChildProcess.run(<<~RUBY, requires: %w[json memscope_test], preload: preload)
        #{script}
        file = #{file.inspect}&.then { |path| File.open(path, "w") }
        answers, rss, status = Host.in_copy(#{EXTENSION.dump}, [#{expressions.map(&:dump).join(',')}], file&.fileno)
        #{after}
        puts JSON.generate({ answers: answers, rss: rss, status: status })
      RUBY
      json = result.json
      answers = json["answers"].map { |raised, bytes| raised ? bytes : decoded(bytes) }
      Answered.new(answers: answers, rss: json["rss"], status: json["status"], err: result.err)
    end

    # @param json [String] as ext/memscope/bindings/copied_value.h describes it
    def decoded(json) = Memscope::Copy::Channel.decoded(JSON.parse(json))
  end
end

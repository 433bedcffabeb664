# frozen_string_literal: true

require_relative "child_process"

# Checks files of texts, and reads them in another way than Memscope::Words.
module WordFiles
  ALL = Dir[File.join(ChildProcess::ROOT, "lib/memscope/**/*.words")].freeze
  # The name of a text, a line of a text, and a line beside texts: blank, or a comment.
  NAME = /\A[a-z][A-Za-z0-9_.]*\z/
  LINE = /\A {2}(?: {2})?[^ ](?:.*[^ ])?\z/
  BESIDE = /\A(?:#.*)?\z/
  # "%s", "%.1f", "%{bytes}", "%%"
  PLACE = /%(?:[sd%]|\.\df|\{\w+\})/

  class << self
    # @return [Hash{Symbol => Array<String>}] the lines of each text
    # @raise [RuntimeError] that names the line that is malformed
    def read(path)
      texts = {}
      name = nil
      [*File.readlines(path, chomp: true), ""].each.with_index(1) do |line, number|
        problem = problem(line, name, texts) and raise "#{path}:#{number}: #{problem}"
        case line
        when NAME then texts[name = line.to_sym] = []
        when LINE then texts[name] << line.delete_prefix("  ")
        else name = nil
        end
      end
      texts
    end

    private

    def problem(line, name, texts)
      return problem_of_text(line, name) if line.match?(LINE)
      return "a name without a text" if name && texts[name].empty?
      return if line.match?(BESIDE)
      return "neither a name, nor a text or a comment" unless line.match?(NAME)

      "a second text of this name" if texts.key?(line.to_sym)
    end

    def problem_of_text(line, name)
      return "a text without a name" unless name

      "a per cent sign that stands for nothing: %% is one" if line.gsub(PLACE, "").include?("%")
    end
  end
end

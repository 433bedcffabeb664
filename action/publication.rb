# frozen_string_literal: true

require "json"

module Memscope
  # Where a comparison can be read: in one comment on a pull request, which each later one replaces, in the summary of a
  # job of GitHub, or on standard output.
  class Publication
    # @param pull_request [String, nil] its number
    # @param token [String, nil] that may write comments
    def initialize(pull_request, token)
      @token = token
      @issues = "repos/#{ENV.fetch('GITHUB_REPOSITORY', nil)}/issues"
      @pull_request = pull_request
    end

    # @param text [String] the first line of which no other comment has
    def write(text)
      return if @pull_request && !@token.to_s.empty? && commented?(text)

      summary = ENV.fetch("GITHUB_STEP_SUMMARY", nil)
      summary ? File.write(summary, text, mode: "a") : puts(text)
    end

    private

    # Only a comment by a bot, as jobs are: a person's comment may begin with the same line.
    #
    # @return [Boolean] false if gh fails, as for a pull request from a fork, whose token can only read
    def commented?(text)
      title = JSON.generate(text.lines.first.chomp)
      ours = ".[] | select(.user.type == \"Bot\" and (.body | startswith(#{title}))) | .id"
      all = "#{@issues}/#{@pull_request}/comments"
      id = gh("--paginate", all, "--jq", ours)&.lines(chomp: true)&.first
      place = id ? ["--method", "PATCH", "#{@issues}/comments/#{id}"] : [all]
      !gh(*place, "--field", "body=@-", input: text).nil?
    end

    # @return [String, nil] its output, nil if it fails
    def gh(*arguments, input: "")
      output = IO.popen([{ "GH_TOKEN" => @token }, "gh", "api", *arguments], "r+") do |io|
        io.write(input)
        io.close_write
        io.read
      end
      output if Process.last_status.success?
    rescue SystemCallError
      nil
    end
  end
end

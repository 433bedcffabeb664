# frozen_string_literal: true

require "open3"
require "rbconfig"

module Memscope
  module Launch
    # A Ruby that lives a moment in the environment of a program to be started, and proves which allocator serves it.
    module Probe
      # Arguments: the file with the proof, and what to expect. The last line of its output is the answer.
      SCRIPT = <<~'RUBY'
        require ARGV.first
        allocator, objection = Memscope::Launch::Proof.attempt(ARGV.last)
        puts "", allocator ? "proved #{allocator}" : "not proved #{objection.tr("\n", " ")}"
      RUBY
      # jemalloc's messages about MALLOC_CONF.
      REJECTED = /^<jemalloc>: (.*\bconf.*)$/i
      private_constant :SCRIPT, :REJECTED

      class << self
        # @param choice [AllocatorChoice] of an allocator
        # @param changes [Hash{String => String, nil}] of the environment
        # @return [String] the allocator that is proved
        # @raise [Refusal] saying why it is not the chosen one
        def allocator(choice, changes)
          out, err, status = Open3.capture3(changes, *command(choice.name))
          rejected = err.scrub.scan(REJECTED).flatten.uniq
          raise Refusal, "jemalloc rejects MALLOC_CONF: #{rejected.join('; ')}" unless rejected.empty?

          complaint = choice.library && DynamicLinker.complaint(err, choice.library)
          raise Refusal, complaint if complaint

          answer(out.scrub.lines.last.to_s.chomp) ||
            raise(Refusal, "the probe ended early: #{status}: #{err.scrub.strip.tr("\n", ' ')}")
        end

        private

        def command(expected)
          [RbConfig.ruby, "--disable=gems,rubyopt", *HandOver.load_path.map { |directory| "-I#{directory}" },
           "-e", SCRIPT, File.join(__dir__, "proof.rb"), expected]
        end

        def answer(line)
          raise Refusal, line.delete_prefix("not proved ") if line.start_with?("not proved ")

          line.delete_prefix("proved ") if line.start_with?("proved ")
        end
      end
    end
  end
end

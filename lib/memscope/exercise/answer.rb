# frozen_string_literal: true

module Memscope
  class Exercise < Reading
    # Refuses answers that would mislead an exercise: a leak on an error page is not the one in question.
    #
    # @api private
    module Answer
      # Statuses that are fine, and those that can be allowed.
      FINE = (200..299)
      ALLOWABLE = (300..499)
      # The most characters of an error that a message quotes.
      EXCERPT = 200
      private_constant :FINE, :ALLOWABLE, :EXCERPT

      class << self
        # @param allowed [Array<Integer>]
        # @return [Array<Integer>] `allowed` itself
        # @raise [ArgumentError] unless `allowed` is an Array of statuses that can be allowed
        def check_allowed(allowed)
          valid = allowed.is_a?(Array) && allowed.all? { |one| one.is_a?(Integer) && ALLOWABLE.cover?(one) }
          Field.refuse("Memscope::Exercise.run: allow_status", allowed, "statuses from 300 to 499") unless valid
          allowed
        end

        # @param what [String] the request
        # @param status [Integer]
        # @param allowed [Array<Integer>] further statuses that are fine
        # @param location [String, nil] where the answer redirects to
        # @param error [Exception, String, nil] what was raised, or the answer's text
        # @raise [Failed] unless the status is fine
        def check(what, status, allowed, location: nil, error: nil)
          return if FINE.cover?(status) || allowed.include?(status)

          said = location ? "to #{location}" : excerpt(error)
          allow = "; allow_status (--allow-status #{status}) allows it" if ALLOWABLE.cover?(status)
          raise Failed, "#{["#{what}: status #{status}", said].reject(&:empty?).join(' ')}#{allow}"
        end

        # @param error [Exception, String, nil]
        # @return [String] its first line that is not empty
        def excerpt(error)
          text = error.is_a?(Exception) ? "#{error.class}: #{error.message}" : error.to_s
          line = Field.utf8(text).each_line(chomp: true).find { |one| one.match?(/\S/) }.to_s.strip
          Field.line(line[0, EXCERPT])
        end
      end
    end
    private_constant :Answer
  end
end

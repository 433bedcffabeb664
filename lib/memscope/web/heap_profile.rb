# frozen_string_literal: true

require_relative "../profile/formats"
require_relative "profiling"
require_relative "response"

module Memscope
  module Web
    # GET /debug/pprof/heap, as Go has it: the malloc profile that runs, for Pyroscope, Parca and `go tool pprof`; with
    # seconds=N what changed in so many seconds from now. In a cluster the profiles of all workers as one, whichever
    # worker is asked, or with worker=N that of one. Go's text (debug=1) is refused: it is of addresses, which no other
    # program could name frames of Ruby by.
    #
    # @api private
    class HeapProfile
      TYPE = "application/octet-stream"
      HEADERS = { "content-disposition" => 'attachment; filename="heap.pb.gz"' }.freeze
      # Seconds of a delta.
      LONGEST = 300
      NONE = "No malloc profile runs in %s. Start one on the page /profile, or with Memscope::MallocProfile.start."
      private_constant :TYPE, :HEADERS, :LONGEST, :NONE

      def initialize
        @delta = Mutex.new
      end

      # All that is refused is so by a sentence: who asks is no browser.
      #
      # @param request [Request]
      # @param readings [Readings]
      # @return [Array(Integer, Hash, Array<String>)]
      def response(request, readings)
        given, seconds = asked(request)
        profiling = Profiling.new(readings)
        running, missing = running(profiling, profiling.choose(given))
        gzipped(if seconds && !request.head?
                  delta(profiling, running.keys, missing, seconds)
                else
                  readings.fetch(:pprof, running, missing) { whole(profiling, running, missing.dup) }
                end)
      rescue LoadError => e
        refused(501, e.message)
      rescue Refusal => e
        refused(e.status, e.message, e.headers)
      end

      private

      # @return [Array(String, Integer)] the worker, and the seconds of a delta; nil where they were not given
      def asked(request)
        worker, seconds, debug = request.query.values_at("worker", "seconds", "debug").map { |values| values&.last }
        refuse_text(debug)
        [worker, seconds(seconds)]
      end

      # As Go has it, 0 is what nothing given is.
      def refuse_text(debug)
        return if [nil, "", "0"].include?(debug)

        raise Refusal.new(400, "debug: given #{debug[0, 20].inspect}, allowed: 0. There is no text of Go's here: " \
                               "/profile.txt has one for people.")
      end

      def seconds(given)
        return if given.nil?
        return given.to_i if given.match?(/\A\d{1,3}\z/) && given.to_i.between?(1, LONGEST)

        raise Refusal.new(400, "seconds: given #{given[0, 20].inspect}, allowed: a whole number from 1 to #{LONGEST}.")
      end

      # @return [Array(Hash{Profiling::Place => Hash}, Array<String>)] where a profile runs, with its state; and why
      #   that cannot be told of others
      def running(profiling, places)
        missing = []
        states = places.to_h { |place| [place, told(missing) { profiling.state(place) }] }
        running = states.select { |_place, state| state && state[:running] }
        return [running, missing] if running.any?

        raise Refusal.new(missing.any? ? 502 : 404, [format(NONE, places.join(", ")), *missing].join(" "))
      end

      def whole(profiling, running, missing)
        profiles = running.map { |place, state| [place, told(missing) { profiling.read(place, state) }] }
        encoded(profiling, profiles.select(&:last), missing)
      end

      # Keeps one thread of the server's for so long, never a second one.
      def delta(profiling, places, missing, seconds)
        raise Refusal.new(503, "Another request waits for its seconds.", { "retry-after" => seconds.to_s }) unless
          @delta.try_lock

        begin
          earlier = places.to_h { |place| [place, told(missing) { profiling.snapshot(place) }] }.compact
          sleep(seconds)
          encoded(profiling, earlier.filter_map { |place, first| grown(profiling, place, first, missing) }, missing)
        ensure
          @delta.unlock
        end
      end

      def grown(profiling, place, first, missing)
        told(missing) { [place, profiling.snapshot(place) - first] }
      rescue ArgumentError => e # another profile was started meanwhile
        missing << "#{place}: #{e.message}"
        nil
      end

      # What one worker fails by is a comment in the profile of the others.
      def told(missing)
        yield
      rescue Refusal => e
        missing << e.message
        nil
      end

      # @param found [Array<Array(Profiling::Place, Memscope::Profile)>]
      def encoded(profiling, found, missing)
        raise Refusal.new(502, missing.join(" ")) if found.empty?

        parts = found.map { |place, profile| [profile, profiling.cluster? ? place.labels : {}] }
        Memscope::Profile::Formats.merged_pprof(parts, comments: missing.map { |sentence| "missing: #{sentence}" })
      end

      def gzipped(body) = Response.of(200, TYPE, body, HEADERS)

      def refused(status, sentence, headers = {}) = Response.sentence(status, :text, sentence, headers)
    end
  end
end

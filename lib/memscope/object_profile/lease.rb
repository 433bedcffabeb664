# frozen_string_literal: true

require "json"
require_relative "../object_profile"
Memscope::Loading.unit :Profile

module Memscope
  module ObjectProfile
    # A profile of objects that another process requested: `memscope profile --objects --pid`, or a page of
    # Memscope::Web. When a profile that a page started ends, the lease keeps it as JSON, since a stopped profile cannot
    # be read again. The JSON is one String, which adds hardly any objects to the next profile.
    #
    # @api private
    module Lease
      extend Profile::Leasing

      class << self
        # Reads the running profile, whoever started it. Since somebody looks at it, Holders watches it from now on.
        #
        # @return [Profile] the running profile, or else the last one that a page started
        # @raise [Unavailable] if there is no such profile
        def snapshot
          return ObjectProfile.snapshot.tap { Holders.watch } if ObjectProfile.running?

          @last ? Profile.from_json(@last) : refuse("no object profile is running, and none was started on a page")
        end

        # @return [Hash{Symbol => Object}] `session`: the number of the running profile, else of the last one that a
        #   page started, else 0; `running` and `shared`: as in Leasing#state
        def state
          running = super
          session = running[:running] || @last ? ObjectProfile.session : 0
          { session: session, **running }
        end

        private

        def profiler = ObjectProfile

        def begin_session(...) = super.tap { Holders.watch }

        def forked
          @last = nil
          super
        end

        def taken
          shared = @shared
          super.tap { |profile| @last = JSON.generate(profile.to_h).freeze if shared }
        end

        def wait(_token, seconds) = sleep(seconds)

        def expired = taken
      end
    end
  end
end

# frozen_string_literal: true

Memscope::Loading.unit :Profile

module Memscope
  class Tags < Reading
    # The windows of allocations that a profile of objects has sampled, as of one moment. Errors are estimated from
    # them, as in Profile.
    class Windows < Record
      # @return [Integer]
      field :windows, :count, null: false
      # @return [Integer] how many allocations the windows stand for
      field :allocations, :count, null: false
      # @return [Float] the share of these allocations that is in windows
      field :windows_share, :number, null: false
      # @return [Float] the effective number of windows
      field :equal_windows, :number, null: false

      # @api private
      # @param earlier [Windows, nil] of the same profile
      # @return [Windows, nil] the windows since `earlier`; nil if nothing was watched since then
      def since(earlier)
        return self unless earlier

        between = allocations - earlier.allocations
        return unless between.positive? && seen > earlier.seen

        count = [windows - earlier.windows, 1].max
        equal = (between**2) / [squares - earlier.squares, 1.0].max
        Windows.capture({ windows: count, allocations: between, equal_windows: equal.clamp(1.0, count.to_f),
                          windows_share: [(seen - earlier.seen) / between, 1.0].min })
      end

      protected

      def seen = windows_share * allocations

      # The sum of the squares of what windows stand for.
      def squares = windows.zero? ? 0.0 : (allocations**2) / equal_windows
    end

    # What was counted and sampled of one tag, from which its Row is calculated.
    class Totals < Record
      # The index of the objects in a share, as in a share of a profile.
      OBJECTS = Profile::Shares::OBJECTS
      # The index of the samples in a share.
      SAMPLES = 3

      # @return [String]
      field :name, :string, null: false
      # @return [Integer] runs that have begun
      field :runs, :count, null: false
      # @return [Integer] runs in progress
      field :running, :count, null: false
      # @return [Integer, nil] allocated through malloc
      field :malloc_allocated_bytes, :bytes
      # @return [Float] the runs that allocated these bytes; a run in progress counts as half a run, here and below
      field :malloc_runs, :number, null: false
      # @return [Integer, nil] what the malloc profile says is live
      field :malloc_live_bytes, :bytes
      # @return [Float, nil] runs since the profile of objects began; nil if no such profile is running
      field :profiled_runs, :number
      # @return [Integer, nil] allocations that were watched
      field :counted, :count
      # @return [Float, nil] how many objects the watched allocations stand for
      field :allocated_objects, :number
      # @return [Float, nil] the sum over windows of the square of what each adds to allocated_objects
      field :squares, :number
      # @return [Float, nil] the sum over windows of the product of what each adds and the allocations it stands for
      field :products, :number
      # @return [Integer, nil] samples of live objects
      field :live_samples, :count
      # @return [Integer, nil] how many live objects these samples stand for
      field :live_objects, :count
      # @return [Integer, nil] the bytes of these live objects
      field :live_bytes, :bytes
      # @return [Float, nil] runs from when the profile began to the last but one major GC; nil before the profile's
      #   second major GC
      field :judged_runs, :number
      # @return [Integer, nil] samples of objects that were allocated before the last but one major GC, and are alive
      #   after the last
      field :samples, :count
      # @return [Array<Array<Integer>>, nil] for each window with such samples: its number, the allocations that it
      #   stands for, the objects that it adds, and its number of samples
      field :shares, :shares

      # The fields of which `since` subtracts the earlier value. It also computes shares and samples; all other fields
      # are as of the later reading.
      GROWING = %i[runs malloc_allocated_bytes malloc_runs profiled_runs counted allocated_objects squares products
                   judged_runs].freeze
      # The fields that a profile has sampled, by the field of Tags that identifies the profile.
      #
      # @api private
      SESSIONS = {
        session: %i[profiled_runs counted allocated_objects squares products judged_runs samples shares],
        malloc_session: %i[malloc_allocated_bytes malloc_runs]
      }.freeze
      private_constant :GROWING

      # @api private
      # @param earlier [Totals, nil] of the same tag; nil if the tag had not run yet
      # @return [Totals] of the time in between
      def since(earlier)
        return self unless earlier

        grown = GROWING.to_h { |name| [name, since_of(name, earlier)] }
        grown[:shares] = shares_since(earlier) if shares
        grown[:samples] = grown[:shares].sum { |share| share[SAMPLES].abs } if shares
        changed(**grown)
      end

      # Sorts by what a tag retains in total, even from few samples. Not per run: an endpoint that fills its caches in
      # its first request would come before a leak.
      #
      # @api private
      # @return [Array] a sort key: the least comes first
      def rank = [-(shares || []).sum { |share| share[OBJECTS] }, -live_bytes.to_i, -runs.to_i, name]

      # @api private
      # @param fields [Array<Symbol>] the fields to set to nil
      # @return [Totals] to subtract from a later one
      def without(fields) = changed(**fields.to_h { |name| [name, nil] })

      private

      # Returns nil if the count was started anew in between.
      def since_of(name, earlier)
        now, before = [self, earlier].map { |one| one.public_send(name) }
        grown = now && (now - (before || 0))
        grown unless grown&.negative?
      end

      # Objects that are in both readings cancel out.
      def shares_since(earlier)
        sums = shares.to_h { |share| [share.first, share.dup] }
        (earlier.shares || []).each do |window, allocations, objects, samples|
          sum = sums[window] ||= [window, allocations, 0, 0]
          sum[OBJECTS] -= objects
          sum[SAMPLES] -= samples
        end
        sums.values.reject { |share| share[OBJECTS].zero? && share[SAMPLES].zero? }.each(&:freeze).freeze
      end
    end
  end
end

# frozen_string_literal: true

Memscope::Loading.units :Diff, :ObjectProfile

module Memscope
  Record.declare(__FILE__)

  # The objects and the memory that a block allocates, and how much of them remains after a garbage collection.
  #
  #   measurement = Memscope.measure { Report.render }
  #   measurement.allocated_objects   # => 41250
  #   measurement.lines.first         # => the line that retains most
  #   measurement.value               # => the block's result
  #   puts measurement
  #
  # Each object that the calling thread allocates is counted, in any of its fibers. A reason gives the number of objects
  # that other threads allocate in the meantime. Garbage is collected as usual. Internal objects count too, such as the
  # caches that Ruby fills when a line runs for the first time: call the block once before, to leave these out.
  #
  # The block's result is retained, with all that it refers to, because `value` holds it.
  class Measurement < Reading
    # The objects of one class that one line allocated and that are still alive, with the addresses of some of them.
    # @api private
    Survivors = Struct.new(:path, :lineno, :name, :objects, :bytes, :addresses)

    # Names the row of objects that were allocated outside of Ruby code.
    NO_LINE = "[no Ruby line]"

    # @return [Object] the block's result; nil for a measurement from JSON
    attr_reader :value

    # For each thread, the fiber that measures, or that measured last. Keeps neither threads nor fibers alive.
    FIBERS = ObjectSpace::WeakMap.new
    EACH_OBJECT = %i[classes lines allocated_bytes retained_objects retained_bytes].freeze
    private_constant :FIBERS, :EACH_OBJECT

    class << self
      # @api private
      def take(&block)
        raise ArgumentError, "Memscope.measure: no block given" unless block

        prepare
        started = Cost.now
        obstacle = Native.absence || ObjectProfile.obstacle
        before = Ledger.read(deep: true, gc: true)
        Native.collect_garbage # frees the garbage of the ledger, which would otherwise be freed after the block
        lead_us = Cost.now - started
        value, body = run(obstacle.nil?, &block)
        (body ? of(body, obstacle, before, lead_us) : outside).holding(value)
      end

      # The objects that any thread allocates while the block runs, and that a garbage collection leaves.
      # @api private
      # @raise [Unavailable] before the block or after it, with the reason
      def survivors(&)
        obstacle = Native.absence || ObjectProfile.obstacle
        raise Unavailable.new(:objects_uncounted, obstacle) if obstacle

        prepare
        _value, body = run(:process, &)
        why = body ? body[:reasons].values_at(:classes, :retained_objects).compact.first : :measured_in_parent
        raise Unavailable.new(:objects_uncounted, why) if why

        body[:rows].map { |row| Survivors.new(*row.values_at(0, 1, 2, 5, 6, 7)) }.select { |one| one.objects.positive? }
      end

      private

      def prepare
        end_abandoned if Native.measuring
        refuse_another if Native.measuring
        raise Unavailable, :objects_profiled if ObjectProfile.running?

        # A child that is forked within a block goes on unmeasured.
        @halt ||= -> { Native.halt_measurement }.tap { |halt| Forks.listen(child: halt, daemon: halt) }
        FIBERS[Thread.current] = Fiber.current
      end

      # A fiber that nothing refers to is never resumed, and so never ends its block.
      def end_abandoned
        GC.start
        thread = Native.measuring
        Native.halt_measurement unless thread.nil? || (thread.alive? && FIBERS.key?(thread))
      end

      def refuse_another
        where = if !Native.measuring.equal?(Thread.current) then "another thread"
                elsif FIBERS[Thread.current].equal?(Fiber.current) then "this thread, around this block"
                else "another fiber of this thread"
                end
        raise Unavailable.new(:measurement_running, where)
      end

      def run(objects, &)
        Native.clear_stack
        answer = Native.measure(objects, false, &)
        answer == :running ? refuse_another : answer
      end

      # `lead_us` is the time from the call to the block.
      def of(body, obstacle, before, lead_us)
        ended = Cost.now
        later = Ledger.read(deep: true)
        body.update(counted(*%i[rows knows_retained objects].map { |key| body.delete(key) }), rows: later - before)
        explain(body, obstacle)
        costs = [before.cost, later.cost]
        rest = lead_us + Cost.now - ended - costs.sum(&:wall_us) # the collections
        costs += [body[:cost], Cost.of(:T3, [rest, 0].max)].map { |cost| Cost.capture(cost) }
        capture(body.update(cost: Cost.sum(costs)))
      end

      def explain(body, obstacle)
        return body[:reasons].update(names: :names_from_code) if body[:classes]

        why = body[:reasons][:classes] || obstacle
        body[:reasons].update(EACH_OBJECT.to_h { |name| [name, why] })
        body[:reasons][:allocated_objects] = body[:allocated_objects] ? :objects_of_all_threads : why
      end

      # The rows from the extension have, for each pair of line and class: the path, the line number, the class and the
      # four numbers. `total` is the number of objects that all threads allocated.
      def counted(rows, retained_known, total)
        return { allocated_objects: total } unless rows

        { **sums(rows, retained_known),
          classes: grouped(rows, retained_known) { |row| { name: row[2] } },
          lines: grouped(rows, retained_known) { |path, lineno, *| place(path, lineno) } }
      end

      def grouped(rows, retained_known, &)
        groups = rows.group_by(&).map { |name, parts| { **name, **sums(parts, retained_known) } }
        groups.sort_by { |row| [-row[:retained_bytes].to_i, -row[:allocated_bytes], row[:name]] }
      end

      def place(path, lineno) = { name: path ? "#{path}:#{lineno}" : NO_LINE, path: path, lineno: lineno }

      def sums(rows, retained_known)
        allocated, bytes, retained, retained_bytes = [3, 4, 5, 6].map { |column| rows.sum { |row| row[column] } }
        { allocated_objects: allocated, allocated_bytes: bytes, retained_objects: (retained if retained_known),
          retained_bytes: (retained_bytes if retained_known) }
      end

      # The result in a child that was forked within the block.
      def outside = capture({ cost: Cost.of(:T0), reasons: own_fields.to_h { |one| [one.name, :measured_in_parent] } })
    end

    # @api private
    def holding(value) = dup.tap { |measurement| measurement.instance_variable_set(:@value, value) }.freeze
  end
end

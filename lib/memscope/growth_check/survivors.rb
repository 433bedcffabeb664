# frozen_string_literal: true

require "objspace"

module Memscope
  class GrowthCheck < Reading
    # The living objects whose allocation ObjectSpace has traced.
    #
    # @api private
    module Survivors
      # Files whose own objects do not count.
      OWN = "#{File.expand_path('..', __dir__)}/".freeze
      # A class can redefine these methods, and a BasicObject has none.
      NAME, ANCESTORS = %i[name ancestors].map { |name| Module.instance_method(name) }
      CLASS, TO_S = %i[class to_s].map { |name| Kernel.instance_method(name) }
      private_constant :NAME, :ANCESTORS, :CLASS, :TO_S

      class << self
        # @return [Boolean] whether a Ractor has ended the last trace
        attr_reader :ended

        # Traces what the block allocates, and forgets it afterwards, unless the program traces allocations itself. Ruby
        # can crash if that goes on beside another Ractor.
        def trace(&)
          own = ObjectSpace.allocation_sourcefile(Object.new)
          @since = GC.count + 1
          @ended = false
          Native.before_ractors = method(:end_trace)
          GC.start # what the program has traced before is of an earlier generation
          ObjectSpace.trace_object_allocations(&)
        ensure
          Native.before_ractors = nil
          ObjectSpace.trace_object_allocations_clear unless own
        end

        # @param most [Integer] the most addresses for each class and place
        # @return [Hash{String => Hash{Place => Array<Integer>}}] by class, as a census names it: where its objects were
        #   allocated, with the addresses of some of them
        def read(most)
          found = Hash.new { |classes, name| classes[name] = {} }
          each do |object, at|
            count = found[name_of(object)][at] ||= { count: 0, bytes: 0, addresses: [] }
            count[:count] += 1
            count[:bytes] += ObjectSpace.memsize_of(object)
            count[:addresses] << address(object) if count[:addresses].size < most
          end
          found.transform_values { |places| places.to_h { |at, count| [place(at, count), count[:addresses]] } }
        end

        private

        def end_trace
          @ended = true
          ObjectSpace.trace_object_allocations_stop
          ObjectSpace.trace_object_allocations_clear
        end

        # Leaves out what other threads have allocated since the last collection, because that may be garbage.
        def each
          generations = @since...GC.count
          ObjectSpace.each_object do |object|
            path = ObjectSpace.allocation_sourcefile(object)
            next if path.nil? || path.start_with?(OWN)
            next unless generations.cover?(ObjectSpace.allocation_generation(object))

            yield object, [path, ObjectSpace.allocation_sourceline(object)]
          end
        end

        def place((path, lineno), count)
          Place.capture({ path: path, lineno: lineno, native: nil, count: count[:count], bytes: count[:bytes] })
        end

        def name_of(object)
          own = CLASS.bind_call(object)
          NAME.bind_call(own) || "#{nearest_name(own)} (anonymous subclass)"
        end

        def nearest_name(own) = ANCESTORS.bind_call(own).grep(Class).filter_map { |one| NAME.bind_call(one) }.first

        def address(object) = TO_S.bind_call(object)[/0x\h+(?=>\z)/].hex
      end
    end
    private_constant :Survivors
  end
end

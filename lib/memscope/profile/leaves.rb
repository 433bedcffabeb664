# frozen_string_literal: true

require_relative "libraries"

module Memscope
  class Profile < Reading
    # The innermost frames of every stack are malloc itself and the functions through which Ruby calls it: pprof would
    # attribute all memory to them.
    #
    # @api private
    class Leaves
      # The entry points of the allocator, of the C library, and of Ruby (in gc.c, and since 3.4 in gc/default).
      WRAPPERS = /\A(?:_*(?:libc|je|mi|tc|ruby|rb|objspace)_(?:gc_impl_)?)?x?
                  (?:malloc|calloc|realloc|reallocarray|memalign|posix_memalign|aligned_alloc)/x
      private_constant :WRAPPERS

      # @param frames [Array<Frame>] of a profile
      def initialize(frames)
        @wrapper = frames.map do |frame|
          frame.kind == :native && Libraries.runtime?(frame.library) && (!frame.named? || frame.name.match?(WRAPPERS))
        end
      end

      # @param stack [Stack]
      # @return [Array<Integer>] its frames without the wrappers at its leaf; all of them if nothing else is there
      def trim(stack)
        kept = stack.frames.drop_while { |frame| @wrapper[frame] }
        kept.empty? ? stack.frames : kept
      end
    end
  end
end

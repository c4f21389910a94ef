// Made by make_ptx.py of staying.cu and what it includes.
// Source: ac5ad77cffc9f88bf7ee17d42c9ea181a3abd191743cef777dc584612ed1cdcc
#include "staying/staying_ptx.h"

namespace tcpx {

const char kStayingPtx[] = R"ptx(.version 7.8
.target sm_70
.address_size 64
	// .globl	stay_and_copy
.visible .entry stay_and_copy(
	.param .align 8 .b8 stay_and_copy_param_0[64]
)
{
	.reg .pred 	%p<83>;
	.reg .b16 	%rs<9>;
	.reg .b32 	%r<650>;
	.reg .b64 	%rd<148>;
	// demoted variable
	.shared .align 16 .b8 _ZZ13stay_and_copyE6shared[560];
	mov.b64 	%rd33, stay_and_copy_param_0;
	mov.u64 	%rd1, %rd33;
	mov.u32 	%r1, %tid.x;
	setp.ne.s32 	%p2, %r1, 0;
	@%p2 bra 	$L__BB0_2;
	ld.param.u64 	%rd35, [%rd1+32];
	st.shared.u64 	[_ZZ13stay_and_copyE6shared], %rd35;
	// begin inline asm
	mov.u64 %rd34, %globaltimer;
	// end inline asm
	st.shared.u64 	[_ZZ13stay_and_copyE6shared+16], %rd34;
	st.shared.u64 	[_ZZ13stay_and_copyE6shared+8], %rd34;
	mov.u32 	%r229, 0;
	st.shared.v2.u32 	[_ZZ13stay_and_copyE6shared+544], {%r229, %r229};
$L__BB0_2:
	bar.sync 	0;
	ld.shared.u32 	%r230, [_ZZ13stay_and_copyE6shared+548];
	setp.ne.s32 	%p3, %r230, 0;
	@%p3 bra 	$L__BB0_86;
	ld.param.u64 	%rd36, [%rd1];
	mul.wide.u32 	%rd37, %r1, 16;
	add.s64 	%rd2, %rd36, %rd37;
	mov.u64 	%rd38, _ZZ13stay_and_copyE6shared;
	add.s64 	%rd39, %rd38, %rd37;
	add.s64 	%rd3, %rd39, 32;
	shr.u32 	%r2, %r1, 5;
	and.b32  	%r3, %r1, 31;
	cvt.u64.u32 	%rd4, %r3;
	ld.param.u64 	%rd5, [%rd1+48];
	ld.param.u64 	%rd6, [%rd1+8];
	ld.param.u64 	%rd7, [%rd1+16];
	ld.param.u64 	%rd8, [%rd1+24];
	ld.param.u64 	%rd9, [%rd1+40];
	ld.param.u64 	%rd10, [%rd1+56];
	mul.wide.u32 	%rd11, %r3, 16;
$L__BB0_4:
	mov.u32 	%r492, %tid.x;
	setp.gt.u32 	%p4, %r492, 31;
	@%p4 bra 	$L__BB0_7;
	setp.ne.s32 	%p5, %r3, 0;
	ld.shared.u64 	%rd43, [_ZZ13stay_and_copyE6shared];
	shl.b64 	%rd44, %rd43, 9;
	and.b64  	%rd45, %rd44, 32256;
	add.s64 	%rd42, %rd2, %rd45;
	// begin inline asm
	ld.acquire.sys.global.v2.u64 {%rd40,%rd41}, [%rd42];
	// end inline asm
	shr.u64 	%rd46, %rd40, 55;
	st.shared.v2.u64 	[%rd3], {%rd40, %rd41};
	ld.shared.u64 	%rd47, [_ZZ13stay_and_copyE6shared];
	shr.u64 	%rd48, %rd47, 6;
	mul.hi.u64 	%rd49, %rd48, 36099303471055875;
	sub.s64 	%rd50, %rd48, %rd49;
	shr.u64 	%rd51, %rd50, 1;
	add.s64 	%rd52, %rd51, %rd49;
	shr.u64 	%rd53, %rd52, 8;
	mul.lo.s64 	%rd54, %rd53, 511;
	sub.s64 	%rd55, %rd48, %rd54;
	add.s64 	%rd56, %rd55, 1;
	setp.eq.s64 	%p6, %rd46, %rd56;
	shr.u64 	%rd57, %rd41, 55;
	setp.eq.s64 	%p7, %rd57, %rd46;
	and.pred  	%p8, %p6, %p7;
	mov.u32 	%r232, -1;
	vote.sync.ballot.b32 	%r6, %p8, %r232;
	@%p5 bra 	$L__BB0_7;
	st.shared.u32 	[_ZZ13stay_and_copyE6shared+544], %r6;
$L__BB0_7:
	bar.sync 	0;
	ld.shared.u32 	%r7, [_ZZ13stay_and_copyE6shared+544];
	and.b32  	%r233, %r7, 1;
	setp.eq.b32 	%p9, %r233, 1;
	mov.pred 	%p10, 0;
	xor.pred  	%p11, %p9, %p10;
	not.pred 	%p12, %p11;
	mov.u16 	%rs7, 0;
	@%p12 bra 	$L__BB0_9;
	ld.shared.u64 	%rd58, [_ZZ13stay_and_copyE6shared+32];
	and.b64  	%rd59, %rd58, 281474976710655;
	setp.lt.u64 	%p13, %rd59, 31;
	cvt.u32.u64 	%r234, %rd58;
	mov.u32 	%r235, 2;
	shl.b32 	%r236, %r235, %r234;
	add.s32 	%r237, %r236, -1;
	selp.b32 	%r238, %r237, -1, %p13;
	and.b32  	%r239, %r238, %r7;
	setp.eq.s32 	%p14, %r239, %r238;
	selp.u16 	%rs7, 1, 0, %p14;
$L__BB0_9:
	setp.eq.s16 	%p15, %rs7, 0;
	@%p15 bra 	$L__BB0_76;
	ld.shared.u32 	%r8, [_ZZ13stay_and_copyE6shared+32];
	setp.ge.u32 	%p16, %r2, %r8;
	@%p16 bra 	$L__BB0_76;
	mov.u32 	%r517, %r2;
$L__BB0_12:
	mov.u64 	%rd138, _ZZ13stay_and_copyE6shared;
	add.s32 	%r241, %r517, 1;
	mul.wide.u32 	%rd60, %r241, 16;
	add.s64 	%rd62, %rd138, %rd60;
	ld.shared.v2.u64 	{%rd63, %rd64}, [%rd62+32];
	mov.u32 	%r519, 0;
	and.b64  	%rd12, %rd63, 281474976710655;
	and.b64  	%rd13, %rd64, 281474976710655;
	shr.u64 	%rd67, %rd63, 48;
	cvt.u32.u64 	%r242, %rd67;
	and.b32  	%r243, %r242, 127;
	shr.u64 	%rd68, %rd64, 48;
	cvt.u32.u64 	%r244, %rd68;
	and.b32  	%r245, %r244, 127;
	bfi.b32 	%r10, %r245, %r243, 7, 7;
	cvt.u32.u64 	%r246, %rd64;
	neg.s32 	%r247, %r246;
	and.b32  	%r248, %r247, 15;
	min.u32 	%r11, %r248, %r10;
	sub.s32 	%r249, %r10, %r11;
	shr.u32 	%r12, %r249, 4;
	and.b32  	%r250, %r249, -16;
	or.b32  	%r13, %r250, %r11;
	setp.le.u32 	%p17, %r11, %r3;
	add.s32 	%r14, %r13, %r3;
	mov.u32 	%r518, %r519;
	@%p17 bra 	$L__BB0_14;
	add.s64 	%rd69, %rd12, %rd4;
	// begin inline asm
	ld.global.u8 %r518, [%rd69];
	// end inline asm
$L__BB0_14:
	setp.ge.u32 	%p18, %r14, %r10;
	@%p18 bra 	$L__BB0_16;
	cvt.u64.u32 	%rd71, %r13;
	add.s64 	%rd72, %rd12, %rd4;
	add.s64 	%rd70, %rd72, %rd71;
	// begin inline asm
	ld.global.u8 %r519, [%rd70];
	// end inline asm
$L__BB0_16:
	cvt.u64.u32 	%rd14, %r11;
	add.s64 	%rd15, %rd12, %rd14;
	and.b64  	%rd73, %rd15, 15;
	setp.eq.s64 	%p19, %rd73, 0;
	add.s64 	%rd16, %rd13, %rd14;
	and.b64  	%rd17, %rd15, 562949953421296;
	@%p19 bra 	$L__BB0_36;
	setp.ge.u32 	%p20, %r3, %r12;
	@%p20 bra 	$L__BB0_71;
	or.b32  	%r520, %r3, 96;
	cvt.u32.u64 	%r255, %rd15;
	shl.b32 	%r256, %r255, 3;
	and.b32  	%r21, %r256, 24;
	add.s64 	%rd74, %rd14, %rd13;
	add.s64 	%rd18, %rd74, 1536;
	add.s64 	%rd21, %rd74, 1024;
	add.s64 	%rd24, %rd74, 512;
	mov.u64 	%rd146, %rd11;
$L__BB0_19:
	add.s32 	%r257, %r520, -96;
	setp.ge.u32 	%p21, %r257, %r12;
	@%p21 bra 	$L__BB0_21;
	add.s64 	%rd145, %rd17, 16;
	add.s64 	%rd75, %rd17, %rd146;
	// begin inline asm
	ld.global.v4.u32 {%r556,%r555,%r554,%r553}, [%rd75];
	// end inline asm
	add.s64 	%rd76, %rd145, %rd146;
	// begin inline asm
	ld.global.v4.u32 {%r560,%r559,%r558,%r557}, [%rd76];
	// end inline asm
$L__BB0_21:
	add.s32 	%r71, %r520, -64;
	setp.ge.u32 	%p22, %r71, %r12;
	@%p22 bra 	$L__BB0_23;
	add.s64 	%rd144, %rd17, 528;
	add.s64 	%rd143, %rd17, 512;
	add.s64 	%rd77, %rd143, %rd146;
	// begin inline asm
	ld.global.v4.u32 {%r564,%r563,%r562,%r561}, [%rd77];
	// end inline asm
	add.s64 	%rd78, %rd144, %rd146;
	// begin inline asm
	ld.global.v4.u32 {%r568,%r567,%r566,%r565}, [%rd78];
	// end inline asm
$L__BB0_23:
	add.s32 	%r88, %r520, -32;
	setp.ge.u32 	%p23, %r88, %r12;
	@%p23 bra 	$L__BB0_25;
	add.s64 	%rd142, %rd17, 1040;
	add.s64 	%rd141, %rd17, 1024;
	add.s64 	%rd79, %rd141, %rd146;
	// begin inline asm
	ld.global.v4.u32 {%r572,%r571,%r570,%r569}, [%rd79];
	// end inline asm
	add.s64 	%rd80, %rd142, %rd146;
	// begin inline asm
	ld.global.v4.u32 {%r576,%r575,%r574,%r573}, [%rd80];
	// end inline asm
$L__BB0_25:
	setp.ge.u32 	%p24, %r520, %r12;
	@%p24 bra 	$L__BB0_27;
	add.s64 	%rd140, %rd17, 1552;
	add.s64 	%rd139, %rd17, 1536;
	add.s64 	%rd81, %rd139, %rd146;
	// begin inline asm
	ld.global.v4.u32 {%r580,%r579,%r578,%r577}, [%rd81];
	// end inline asm
	add.s64 	%rd82, %rd140, %rd146;
	// begin inline asm
	ld.global.v4.u32 {%r584,%r583,%r582,%r581}, [%rd82];
	// end inline asm
$L__BB0_27:
	add.s32 	%r516, %r520, -96;
	setp.ge.u32 	%p81, %r516, %r12;
	@%p81 bra 	$L__BB0_29;
	and.b32  	%r495, %r255, 8;
	and.b32  	%r494, %r255, 4;
	setp.eq.s32 	%p26, %r494, 0;
	setp.eq.s32 	%p27, %r495, 0;
	selp.b32 	%r311, %r556, %r554, %p27;
	selp.b32 	%r312, %r555, %r553, %p27;
	selp.b32 	%r313, %r554, %r560, %p27;
	selp.b32 	%r314, %r553, %r559, %p27;
	selp.b32 	%r315, %r560, %r558, %p27;
	selp.b32 	%r316, %r559, %r557, %p27;
	selp.b32 	%r292, %r311, %r312, %p26;
	selp.b32 	%r296, %r312, %r313, %p26;
	selp.b32 	%r300, %r313, %r314, %p26;
	selp.b32 	%r304, %r314, %r315, %p26;
	selp.b32 	%r305, %r315, %r316, %p26;
	// begin inline asm
	shf.r.wrap.b32 %r291, %r292, %r296, %r21;
	// end inline asm
	// begin inline asm
	shf.r.wrap.b32 %r295, %r296, %r300, %r21;
	// end inline asm
	// begin inline asm
	shf.r.wrap.b32 %r299, %r300, %r304, %r21;
	// end inline asm
	// begin inline asm
	shf.r.wrap.b32 %r303, %r304, %r305, %r21;
	// end inline asm
	add.s64 	%rd83, %rd16, %rd146;
	// begin inline asm
	st.global.v4.u32 [%rd83], {%r291,%r295,%r299,%r303};
	// end inline asm
$L__BB0_29:
	add.s32 	%r488, %r520, -64;
	setp.ge.u32 	%p71, %r488, %r12;
	@%p71 bra 	$L__BB0_31;
	and.b32  	%r501, %r255, 8;
	and.b32  	%r500, %r255, 4;
	setp.eq.s32 	%p29, %r500, 0;
	setp.eq.s32 	%p30, %r501, 0;
	selp.b32 	%r337, %r564, %r562, %p30;
	selp.b32 	%r338, %r563, %r561, %p30;
	selp.b32 	%r339, %r562, %r568, %p30;
	selp.b32 	%r340, %r561, %r567, %p30;
	selp.b32 	%r341, %r568, %r566, %p30;
	selp.b32 	%r342, %r567, %r565, %p30;
	selp.b32 	%r318, %r337, %r338, %p29;
	selp.b32 	%r322, %r338, %r339, %p29;
	selp.b32 	%r326, %r339, %r340, %p29;
	selp.b32 	%r330, %r340, %r341, %p29;
	selp.b32 	%r331, %r341, %r342, %p29;
	// begin inline asm
	shf.r.wrap.b32 %r317, %r318, %r322, %r21;
	// end inline asm
	// begin inline asm
	shf.r.wrap.b32 %r321, %r322, %r326, %r21;
	// end inline asm
	// begin inline asm
	shf.r.wrap.b32 %r325, %r326, %r330, %r21;
	// end inline asm
	// begin inline asm
	shf.r.wrap.b32 %r329, %r330, %r331, %r21;
	// end inline asm
	add.s64 	%rd84, %rd24, %rd146;
	// begin inline asm
	st.global.v4.u32 [%rd84], {%r317,%r321,%r325,%r329};
	// end inline asm
$L__BB0_31:
	add.s32 	%r489, %r520, -32;
	setp.ge.u32 	%p72, %r489, %r12;
	@%p72 bra 	$L__BB0_33;
	and.b32  	%r499, %r255, 8;
	and.b32  	%r498, %r255, 4;
	setp.eq.s32 	%p32, %r498, 0;
	setp.eq.s32 	%p33, %r499, 0;
	selp.b32 	%r363, %r572, %r570, %p33;
	selp.b32 	%r364, %r571, %r569, %p33;
	selp.b32 	%r365, %r570, %r576, %p33;
	selp.b32 	%r366, %r569, %r575, %p33;
	selp.b32 	%r367, %r576, %r574, %p33;
	selp.b32 	%r368, %r575, %r573, %p33;
	selp.b32 	%r344, %r363, %r364, %p32;
	selp.b32 	%r348, %r364, %r365, %p32;
	selp.b32 	%r352, %r365, %r366, %p32;
	selp.b32 	%r356, %r366, %r367, %p32;
	selp.b32 	%r357, %r367, %r368, %p32;
	// begin inline asm
	shf.r.wrap.b32 %r343, %r344, %r348, %r21;
	// end inline asm
	// begin inline asm
	shf.r.wrap.b32 %r347, %r348, %r352, %r21;
	// end inline asm
	// begin inline asm
	shf.r.wrap.b32 %r351, %r352, %r356, %r21;
	// end inline asm
	// begin inline asm
	shf.r.wrap.b32 %r355, %r356, %r357, %r21;
	// end inline asm
	add.s64 	%rd85, %rd21, %rd146;
	// begin inline asm
	st.global.v4.u32 [%rd85], {%r343,%r347,%r351,%r355};
	// end inline asm
$L__BB0_33:
	setp.ge.u32 	%p73, %r520, %r12;
	@%p73 bra 	$L__BB0_35;
	and.b32  	%r497, %r255, 8;
	and.b32  	%r496, %r255, 4;
	setp.eq.s32 	%p35, %r496, 0;
	setp.eq.s32 	%p36, %r497, 0;
	selp.b32 	%r389, %r580, %r578, %p36;
	selp.b32 	%r390, %r579, %r577, %p36;
	selp.b32 	%r391, %r578, %r584, %p36;
	selp.b32 	%r392, %r577, %r583, %p36;
	selp.b32 	%r393, %r584, %r582, %p36;
	selp.b32 	%r394, %r583, %r581, %p36;
	selp.b32 	%r370, %r389, %r390, %p35;
	selp.b32 	%r374, %r390, %r391, %p35;
	selp.b32 	%r378, %r391, %r392, %p35;
	selp.b32 	%r382, %r392, %r393, %p35;
	selp.b32 	%r383, %r393, %r394, %p35;
	// begin inline asm
	shf.r.wrap.b32 %r369, %r370, %r374, %r21;
	// end inline asm
	// begin inline asm
	shf.r.wrap.b32 %r373, %r374, %r378, %r21;
	// end inline asm
	// begin inline asm
	shf.r.wrap.b32 %r377, %r378, %r382, %r21;
	// end inline asm
	// begin inline asm
	shf.r.wrap.b32 %r381, %r382, %r383, %r21;
	// end inline asm
	add.s64 	%rd86, %rd18, %rd146;
	// begin inline asm
	st.global.v4.u32 [%rd86], {%r369,%r373,%r377,%r381};
	// end inline asm
$L__BB0_35:
	add.s64 	%rd146, %rd146, 2048;
	add.s32 	%r121, %r520, 128;
	add.s32 	%r395, %r520, 32;
	setp.lt.u32 	%p37, %r395, %r12;
	mov.u32 	%r520, %r121;
	@%p37 bra 	$L__BB0_19;
	bra.uni 	$L__BB0_71;
$L__BB0_36:
	setp.ge.u32 	%p38, %r3, %r12;
	@%p38 bra 	$L__BB0_71;
	mov.u32 	%r617, %r3;
$L__BB0_38:
	setp.ge.u32 	%p39, %r617, %r12;
	@%p39 bra 	$L__BB0_40;
	shl.b32 	%r401, %r617, 4;
	cvt.u64.u32 	%rd88, %r401;
	add.s64 	%rd87, %rd17, %rd88;
	// begin inline asm
	ld.global.v4.u32 {%r621,%r620,%r619,%r618}, [%rd87];
	// end inline asm
$L__BB0_40:
	add.s32 	%r163, %r617, 32;
	setp.ge.u32 	%p40, %r163, %r12;
	@%p40 bra 	$L__BB0_42;
	shl.b32 	%r406, %r163, 4;
	cvt.u64.u32 	%rd90, %r406;
	add.s64 	%rd89, %rd17, %rd90;
	// begin inline asm
	ld.global.v4.u32 {%r625,%r624,%r623,%r622}, [%rd89];
	// end inline asm
$L__BB0_42:
	add.s32 	%r172, %r617, 64;
	setp.ge.u32 	%p41, %r172, %r12;
	@%p41 bra 	$L__BB0_44;
	shl.b32 	%r411, %r172, 4;
	cvt.u64.u32 	%rd92, %r411;
	add.s64 	%rd91, %rd17, %rd92;
	// begin inline asm
	ld.global.v4.u32 {%r629,%r628,%r627,%r626}, [%rd91];
	// end inline asm
$L__BB0_44:
	add.s32 	%r181, %r617, 96;
	setp.ge.u32 	%p42, %r181, %r12;
	@%p42 bra 	$L__BB0_46;
	shl.b32 	%r416, %r181, 4;
	cvt.u64.u32 	%rd94, %r416;
	add.s64 	%rd93, %rd17, %rd94;
	// begin inline asm
	ld.global.v4.u32 {%r633,%r632,%r631,%r630}, [%rd93];
	// end inline asm
$L__BB0_46:
	add.s32 	%r190, %r617, 128;
	setp.ge.u32 	%p43, %r190, %r12;
	@%p43 bra 	$L__BB0_48;
	shl.b32 	%r421, %r190, 4;
	cvt.u64.u32 	%rd96, %r421;
	add.s64 	%rd95, %rd17, %rd96;
	// begin inline asm
	ld.global.v4.u32 {%r637,%r636,%r635,%r634}, [%rd95];
	// end inline asm
$L__BB0_48:
	add.s32 	%r199, %r617, 160;
	setp.ge.u32 	%p44, %r199, %r12;
	@%p44 bra 	$L__BB0_50;
	shl.b32 	%r426, %r199, 4;
	cvt.u64.u32 	%rd98, %r426;
	add.s64 	%rd97, %rd17, %rd98;
	// begin inline asm
	ld.global.v4.u32 {%r641,%r640,%r639,%r638}, [%rd97];
	// end inline asm
$L__BB0_50:
	add.s32 	%r208, %r617, 192;
	setp.ge.u32 	%p45, %r208, %r12;
	@%p45 bra 	$L__BB0_52;
	shl.b32 	%r431, %r208, 4;
	cvt.u64.u32 	%rd100, %r431;
	add.s64 	%rd99, %rd17, %rd100;
	// begin inline asm
	ld.global.v4.u32 {%r645,%r644,%r643,%r642}, [%rd99];
	// end inline asm
$L__BB0_52:
	add.s32 	%r217, %r617, 224;
	setp.ge.u32 	%p46, %r217, %r12;
	@%p46 bra 	$L__BB0_54;
	shl.b32 	%r436, %r217, 4;
	cvt.u64.u32 	%rd102, %r436;
	add.s64 	%rd101, %rd17, %rd102;
	// begin inline asm
	ld.global.v4.u32 {%r649,%r648,%r647,%r646}, [%rd101];
	// end inline asm
$L__BB0_54:
	setp.ge.u32 	%p82, %r617, %r12;
	@%p82 bra 	$L__BB0_56;
	shl.b32 	%r441, %r617, 4;
	cvt.u64.u32 	%rd104, %r441;
	add.s64 	%rd103, %rd16, %rd104;
	// begin inline asm
	st.global.v4.u32 [%rd103], {%r621,%r620,%r619,%r618};
	// end inline asm
$L__BB0_56:
	add.s32 	%r502, %r617, 32;
	setp.ge.u32 	%p74, %r502, %r12;
	@%p74 bra 	$L__BB0_58;
	add.s32 	%r515, %r617, 32;
	shl.b32 	%r446, %r515, 4;
	cvt.u64.u32 	%rd106, %r446;
	add.s64 	%rd105, %rd16, %rd106;
	// begin inline asm
	st.global.v4.u32 [%rd105], {%r625,%r624,%r623,%r622};
	// end inline asm
$L__BB0_58:
	add.s32 	%r503, %r617, 64;
	setp.ge.u32 	%p75, %r503, %r12;
	@%p75 bra 	$L__BB0_60;
	add.s32 	%r514, %r617, 64;
	shl.b32 	%r451, %r514, 4;
	cvt.u64.u32 	%rd108, %r451;
	add.s64 	%rd107, %rd16, %rd108;
	// begin inline asm
	st.global.v4.u32 [%rd107], {%r629,%r628,%r627,%r626};
	// end inline asm
$L__BB0_60:
	add.s32 	%r504, %r617, 96;
	setp.ge.u32 	%p76, %r504, %r12;
	@%p76 bra 	$L__BB0_62;
	add.s32 	%r513, %r617, 96;
	shl.b32 	%r456, %r513, 4;
	cvt.u64.u32 	%rd110, %r456;
	add.s64 	%rd109, %rd16, %rd110;
	// begin inline asm
	st.global.v4.u32 [%rd109], {%r633,%r632,%r631,%r630};
	// end inline asm
$L__BB0_62:
	add.s32 	%r505, %r617, 128;
	setp.ge.u32 	%p77, %r505, %r12;
	@%p77 bra 	$L__BB0_64;
	add.s32 	%r512, %r617, 128;
	shl.b32 	%r461, %r512, 4;
	cvt.u64.u32 	%rd112, %r461;
	add.s64 	%rd111, %rd16, %rd112;
	// begin inline asm
	st.global.v4.u32 [%rd111], {%r637,%r636,%r635,%r634};
	// end inline asm
$L__BB0_64:
	add.s32 	%r506, %r617, 160;
	setp.ge.u32 	%p78, %r506, %r12;
	@%p78 bra 	$L__BB0_66;
	add.s32 	%r511, %r617, 160;
	shl.b32 	%r466, %r511, 4;
	cvt.u64.u32 	%rd114, %r466;
	add.s64 	%rd113, %rd16, %rd114;
	// begin inline asm
	st.global.v4.u32 [%rd113], {%r641,%r640,%r639,%r638};
	// end inline asm
$L__BB0_66:
	add.s32 	%r507, %r617, 192;
	setp.ge.u32 	%p79, %r507, %r12;
	@%p79 bra 	$L__BB0_68;
	add.s32 	%r510, %r617, 192;
	shl.b32 	%r471, %r510, 4;
	cvt.u64.u32 	%rd116, %r471;
	add.s64 	%rd115, %rd16, %rd116;
	// begin inline asm
	st.global.v4.u32 [%rd115], {%r645,%r644,%r643,%r642};
	// end inline asm
$L__BB0_68:
	add.s32 	%r508, %r617, 224;
	setp.ge.u32 	%p80, %r508, %r12;
	@%p80 bra 	$L__BB0_70;
	add.s32 	%r509, %r617, 224;
	shl.b32 	%r476, %r509, 4;
	cvt.u64.u32 	%rd118, %r476;
	add.s64 	%rd117, %rd16, %rd118;
	// begin inline asm
	st.global.v4.u32 [%rd117], {%r649,%r648,%r647,%r646};
	// end inline asm
$L__BB0_70:
	add.s32 	%r617, %r617, 256;
	setp.lt.u32 	%p55, %r617, %r12;
	@%p55 bra 	$L__BB0_38;
$L__BB0_71:
	@%p17 bra 	$L__BB0_73;
	add.s64 	%rd119, %rd13, %rd4;
	and.b32  	%r477, %r518, 255;
	// begin inline asm
	st.global.u8 [%rd119], %r477;
	// end inline asm
$L__BB0_73:
	@%p18 bra 	$L__BB0_75;
	cvt.u64.u32 	%rd121, %r13;
	add.s64 	%rd122, %rd13, %rd4;
	add.s64 	%rd120, %rd122, %rd121;
	and.b32  	%r478, %r519, 255;
	// begin inline asm
	st.global.u8 [%rd120], %r478;
	// end inline asm
$L__BB0_75:
	mov.u32 	%r491, %ntid.x;
	shr.u32 	%r490, %r491, 5;
	add.s32 	%r517, %r517, %r490;
	setp.lt.u32 	%p58, %r517, %r8;
	@%p58 bra 	$L__BB0_12;
$L__BB0_76:
	bar.sync 	0;
	@%p2 bra 	$L__BB0_85;
	// begin inline asm
	mov.u64 %rd123, %globaltimer;
	// end inline asm
	ld.shared.u32 	%r228, [_ZZ13stay_and_copyE6shared+544];
	and.b32  	%r479, %r228, 1;
	setp.eq.b32 	%p60, %r479, 1;
	mov.pred 	%p61, 0;
	xor.pred  	%p62, %p60, %p61;
	not.pred 	%p63, %p62;
	mov.u16 	%rs8, 0;
	@%p63 bra 	$L__BB0_79;
	ld.shared.u64 	%rd124, [_ZZ13stay_and_copyE6shared+32];
	and.b64  	%rd125, %rd124, 281474976710655;
	setp.lt.u64 	%p64, %rd125, 31;
	cvt.u32.u64 	%r480, %rd124;
	mov.u32 	%r481, 2;
	shl.b32 	%r482, %r481, %r480;
	add.s32 	%r483, %r482, -1;
	selp.b32 	%r484, %r483, -1, %p64;
	and.b32  	%r485, %r484, %r228;
	setp.eq.s32 	%p65, %r485, %r484;
	selp.u16 	%rs8, 1, 0, %p65;
$L__BB0_79:
	setp.eq.s16 	%p66, %rs8, 0;
	@%p66 bra 	$L__BB0_81;
	mov.u64 	%rd147, 0;
	ld.shared.u64 	%rd131, [_ZZ13stay_and_copyE6shared+40];
	and.b64  	%rd127, %rd131, 281474976710655;
	// begin inline asm
	fence.acq_rel.sys; st.relaxed.sys.global.u64 [%rd6], %rd127;
	// end inline asm
	ld.shared.u64 	%rd132, [_ZZ13stay_and_copyE6shared];
	add.s64 	%rd129, %rd132, 1;
	st.shared.u64 	[_ZZ13stay_and_copyE6shared], %rd129;
	// begin inline asm
	st.relaxed.sys.global.u64 [%rd7], %rd129;
	// end inline asm
	st.shared.u64 	[_ZZ13stay_and_copyE6shared+16], %rd123;
	bra.uni 	$L__BB0_82;
$L__BB0_81:
	ld.shared.u64 	%rd133, [_ZZ13stay_and_copyE6shared+16];
	sub.s64 	%rd147, %rd123, %rd133;
	setp.le.u64 	%p67, %rd147, %rd5;
	@%p67 bra 	$L__BB0_85;
$L__BB0_82:
	setp.gt.u64 	%p68, %rd147, %rd5;
	@%p68 bra 	$L__BB0_84;
	ld.shared.u64 	%rd134, [_ZZ13stay_and_copyE6shared+8];
	sub.s64 	%rd135, %rd123, %rd134;
	setp.le.u64 	%p69, %rd135, %rd10;
	@%p69 bra 	$L__BB0_85;
$L__BB0_84:
	mov.u32 	%r486, 1;
	st.shared.u32 	[_ZZ13stay_and_copyE6shared+548], %r486;
	// begin inline asm
	fence.acq_rel.sys; st.relaxed.sys.global.u64 [%rd8], %rd9;
	// end inline asm
$L__BB0_85:
	bar.sync 	0;
	ld.shared.u32 	%r487, [_ZZ13stay_and_copyE6shared+548];
	setp.eq.s32 	%p70, %r487, 0;
	@%p70 bra 	$L__BB0_4;
$L__BB0_86:
	ret;
}
)ptx";

}  // namespace tcpx
